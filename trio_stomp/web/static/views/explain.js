// Explanations by the broker: the events of a message, or why a subscriber received nothing.

import { problem } from "../lib/api.js";
import { Outcome } from "../lib/dialogs.js";
import { announce, byId, el, say, show } from "../lib/dom.js";
import * as format from "../lib/format.js";

/** Limit of events in an answer. The broker returns the newest. */
const MAX_EVENTS = 200;
/** Limit of names suggested for a field. */
const MAX_OFFERED = 200;

/** The page's address for a question. */
export function linkTo({ "message-id": id, ...rest }) {
  return `#explain?${new URLSearchParams(id === undefined ? rest : { id })}`;
}

/** Parse an address into a question for the broker; null if it has none. */
export function questionOf(search) {
  const given = new URLSearchParams(search);
  const [id, destination, session, user] = ["id", "destination", "session", "user"].map(
    (name) => given.get(name) ?? "",
  );
  if (id !== "") return { "message-id": id };
  if (destination === "") return null;
  if (session !== "") return { destination, session };
  return user === "" ? { destination } : { destination, user };
}

/** The request parameters of a question. */
function parametersOf({ "message-id": q, ...rest }) {
  return q === undefined ? rest : { q };
}

/** A link to the answer of a question, or "" without a text. */
export function explained(text, question) {
  if (text === "") return "";
  return el("a", { class: "asks", href: linkTo(question), title: `Explain ${text}` }, text);
}

// A message-id: the start of the broker, a subscription, a number.
const ID = /\b[0-9a-z]+\.[0-9a-z]+-\d+\b/g;

/** Split a sentence into parts, [text, message-id or ""], so that ids can be links. */
export function parts(text) {
  const found = [];
  let end = 0;
  for (const { 0: id, index } of text.matchAll(ID)) {
    if (index > end) found.push([text.slice(end, index), ""]);
    found.push([id, id]);
    end = index + id.length;
  }
  if (end < text.length) found.push([text.slice(end), ""]);
  return found;
}

/** The text of an event, and the option, policy or header that decided, if any. */
export function decided({ text, count, fate, rule = "", policy = "" }) {
  if (!rule) return { text, rule: "", policy: "" };
  return { text: fate === undefined ? text : `${count} ${fate}`, rule, policy };
}

const TONES = new Map([
  ["acknowledged", "good"],
  ["rejected", "bad"],
  ["lost", "bad"],
]);
/** The colour class of an event: good, bad, warn or none. A moved message is not lost. */
export function tone({ what, fate }) {
  return what === "lost" && fate === "moved" ? "warn" : (TONES.get(what) ?? "");
}

/** A sentence on how far back the broker remembers. `now` is in milliseconds since 1970. */
export function horizonText({ horizon_s: seconds }, now) {
  if (!(seconds > 0)) {
    return "The broker remembers no events yet, or explain_events is 0.";
  }
  const since = format.moment(now - 1000 * seconds, now);
  return `Everything of the last ${format.duration(seconds)} is remembered, back to ${since}.`;
}

export class Explain {
  #search = "";
  #turn = 0;

  constructor({ model, api, subscribers }) {
    Object.assign(this, { model, api, subscribers });
    this.byId = byId("explain-id-form");
    this.byDestination = byId("explain-place-form");
    this.outcome = new Outcome(byId("explain-status"));
    this.answer = byId("explain-answer");
    this.byId.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit({ id: this.byId.elements.id.value.trim() });
    });
    this.byDestination.addEventListener("submit", (event) => {
      event.preventDefault();
      const { destination, who, by } = this.byDestination.elements;
      this.#submit({ destination: destination.value.trim(), [by.value]: who.value.trim() });
    });
    this.byDestination.addEventListener("focusin", () => this.#offer());
  }

  /** Answer the question of an address, unless it is already shown. */
  visit(search) {
    const question = questionOf(search);
    if (question === null || search === this.#search) return;
    this.#search = search;
    this.#fill(question);
    this.#ask(question);
  }

  /** Forget the answer, as another user may not see it. */
  forget() {
    this.#search = "";
    this.#turn += 1;
    show(this.answer, false);
    this.outcome.hide();
  }

  #submit(given) {
    const question = questionOf(new URLSearchParams(given));
    if (question === null) return;
    const link = linkTo(question);
    if (location.hash !== link) {
      location.hash = link;
      return;
    }
    // The same question again: the answer may have changed.
    this.#search = "";
    this.visit(link.slice(link.indexOf("?") + 1));
  }

  #fill(question) {
    this.byId.elements.id.value = question["message-id"] ?? "";
    const { destination, who, by } = this.byDestination.elements;
    destination.value = question.destination ?? "";
    who.value = question.session ?? question.user ?? "";
    by.value = question.user === undefined ? "session" : "user";
  }

  /** Suggest destinations and clients that the page knows. */
  #offer() {
    const { connections, destinations } = this.model;
    offer(byId("explain-destinations"), [...destinations.things.keys()].map((name) => [name, ""]));
    const isUser = this.byDestination.elements.by.value === "user";
    const clients = [...connections.things.values()];
    const users = [...new Set(clients.map(({ user }) => user))].filter((user) => user !== "");
    offer(
      byId("explain-clients"),
      isUser
        ? users.map((user) => [user, ""])
        : clients.map(({ session_id: session, user, remote }) => [session, `${user} ${remote}`.trim()]),
    );
  }

  async #ask(question) {
    this.#turn += 1;
    const turn = this.#turn;
    this.#showText("…", false);
    let answer;
    try {
      answer = await this.api.get("explain", parametersOf(question));
    } catch (error) {
      if (turn === this.#turn) this.#showText(problem(error), true);
      return;
    }
    if (turn !== this.#turn) return;
    this.outcome.hide();
    this.#draw(question, answer, Date.now());
  }

  /** Show a text instead of an answer. */
  #showText(text, isWrong) {
    this.outcome.tell(text, { isWrong });
    show(this.answer, false);
  }

  #draw(question, answer, now) {
    const id = question["message-id"];
    const isOfOne = id !== undefined;
    const { session, user } = question;
    const whose = session ? ` for session ${session}` : user ? ` for user ${user}` : "";
    say(byId("explain-title"), isOfOne ? `Message ${id}` : `${question.destination}${whose}`);
    byId("explain-summary").replaceChildren(...summaryItems(answer, question));
    if (isOfOne || whose !== "") this.subscribers.hide();
    else this.subscribers.of(question.destination);
    const { events } = answer;
    // A message's events are shown oldest first, a destination's newest first.
    const shown = isOfOne ? events : [...events].reverse();
    say(byId("explain-order"), orderText(events.length, isOfOne));
    byId("explain-events").replaceChildren(
      ...shown.map((event, index) =>
        this.#item(event, isOfOne ? shown[index - 1] : undefined, now, question),
      ),
    );
    say(byId("explain-horizon"), horizonText(answer, now));
    show(this.answer, true);
    announce(byId("explain-summary").firstChild?.textContent ?? "");
    if (this.answer.getBoundingClientRect().top > 0.6 * window.innerHeight) {
      this.answer.scrollIntoView();
    }
  }

  #item(event, before, now, question) {
    const { what, ms_ago: ago } = event;
    const { text, rule, policy } = decided(event);
    const sentence = el("p", {}, el("span", { class: `kind ${tone(event)}` }, what), " ");
    sentence.append(...linked(text, question["message-id"]));
    const time = el("time", {}, format.moment(now - ago, now));
    if (before !== undefined) {
      time.append(" ", el("small", {}, `+${format.millis(before.ms_ago - ago)}`));
    }
    const item = el("li", { class: tone(event) || null }, time, sentence);
    const about = this.#about(event, question);
    if (about.length > 0) item.append(el("p", { class: "about" }, ...about));
    if (rule !== "") {
      const where = policy === "" ? "" : ` of policy ${policy}`;
      item.append(el("p", { class: "rule" }, "decided by ", el("code", {}, rule), where));
    }
    return item;
  }

  /** The destination and client of an event, unless the question names them. */
  #about({ destination = "", session = "" }, question) {
    const about = [];
    if (destination !== "" && destination !== question.destination) {
      about.push(el("span", {}, "at ", explained(destination, { destination })));
    }
    if (session === "" || session === question.session) return about;
    const target = destination || question.destination;
    const who = this.#who(session) || `session ${session}`;
    about.push(target ? explained(who, { destination: target, session }) : el("span", {}, who));
    return about;
  }

  /** The user and address of a connected or recently ended session. */
  #who(session) {
    const { connections, ended } = this.model;
    const found = connections.things.get(session) ?? ended.find((each) => each.session === session);
    return [found?.user, found?.remote].filter(Boolean).join(" · ");
  }
}

/** A sentence with its message-ids as links, except for the id of the question. */
function linked(text, own) {
  return parts(text).map(([part, id]) =>
    id === "" || id === own ? part : explained(part, { "message-id": id }),
  );
}

function offer(list, names) {
  list.replaceChildren(
    ...names.slice(0, MAX_OFFERED).map(([value, label]) => el("option", { value, label: label || null })),
  );
}

/** The broker's facts, one per line. A message's first fact has the colour of its outcome. */
function summaryItems({ facts, events }, question) {
  const id = question["message-id"];
  if (id === undefined) return facts.map((line) => el("li", {}, line));
  const end = endOf(events);
  return facts.map((line, index) => {
    const sentence = `${line.charAt(0).toUpperCase()}${line.slice(1)}.`;
    return el("li", { class: (index === 0 && end) || null }, ...linked(sentence, id));
  });
}

/** The colour of a message's outcome, regardless of later browsers. */
function endOf(events) {
  const last = events.findLast(({ what }) => what !== "shown");
  return last === undefined ? "" : tone(last);
}

function orderText(count, isOfOne) {
  if (count === 0) return "No events are remembered for this.";
  if (isOfOne) return "Events, oldest first";
  return count >= MAX_EVENTS ? `The newest ${MAX_EVENTS} events, newest first` : "Events, newest first";
}
