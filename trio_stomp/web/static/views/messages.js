// The waiting messages of a queue: shown, searched, and dropped, moved or retried.

import { el, phrase, say, show } from "../lib/dom.js";
import { Outcome, ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { block, button, card } from "../lib/parts.js";
import { isDead, isGrave, origin, targets, waitsThere } from "../model/letters.js";
import { explained } from "./explain.js";

const MAX_BODY_SHOWN = 4000;
/** Messages per request. A button loads more. */
const SHOWN = 50;
/** Limit of ids in one request. */
const MAX_NAMED = 100;
const DEATH = ["original-destination", "x-death-reason", "x-death-count"];

const FIELDS = [
  ["selector", "Selector", { placeholder: "kind = 'apple'" }],
  ["body", "Text in the body", {}],
  ["since", "Arrived from", { type: "datetime-local", step: "1" }],
  ["until", "until", { type: "datetime-local", step: "1" }],
];

export class Messages {
  #messages = [];
  #boxes = new Map();
  #choice = {};
  /** Whether all messages that match are selected, shown or not. */
  #isWhole = false;
  #turn = 0;

  /** `onChange()` is called when messages were moved or removed. */
  constructor({ api, model, onChange }) {
    Object.assign(this, { api, model, onChange });
    this.queue = "";
    this.count = el("small", { class: "messages-count" });
    this.list = el("ol", { class: "messages tall", tabindex: "0", "aria-label": "Messages" });
    this.note = el("p", { class: "note" });
    this.outcome = new Outcome(el("p", { class: "messages-result" }));
    this.form = searchForm();
    this.form.onsubmit = (event) => {
      event.preventDefault();
      this.look();
    };
    this.form.onreset = () => setTimeout(() => this.look());
    this.retryButton = button("Retry …", () => this.#retry());
    this.moveButton = button("Move …", () => this.#move());
    this.dropButton = button("Drop …", () => this.#drop());
    this.more = button("Show more", () => this.#load(this.#messages.length));
    this.actions = el(
      "div",
      { class: "row left", role: "group", "aria-label": "Selected messages" },
      button("Select all shown", () => this.#selectAll()),
      (this.whole = button("Select all that match", () => this.#selectWhole(!this.#isWhole))),
      this.retryButton,
      this.moveButton,
      this.dropButton,
    );
    this.card = card(
      "Messages",
      [this.count, button("Refresh", () => this.look())],
      this.form,
      this.outcome.line,
      this.actions,
      this.list,
      this.note,
      this.more,
    );
  }

  /** The buttons with the operations that they request. */
  needs() {
    return [
      { button: this.retryButton, operation: "retry", at: this.queue },
      { button: this.moveButton, operation: "move", at: this.queue },
      { button: this.dropButton, operation: "purge", at: this.queue },
    ];
  }

  /** Show the messages of a queue. */
  show(queue) {
    this.queue = queue;
    this.form.reset();
    this.outcome.hide();
    this.#fill([], 0);
  }

  /** Show the first messages that match the search. */
  look() {
    const { selector, body, since, until } = this.form.elements;
    this.#choice = {
      queue: this.queue,
      selector: selector.value.trim(),
      body: body.value,
      since: momentOf(since),
      until: momentOf(until),
    };
    this.#load(0);
  }

  /** Forget the messages, as another user may not see them. */
  clear() {
    this.#turn += 1;
    this.#fill([], 0);
  }

  async #load(offset) {
    this.#turn += 1;
    const turn = this.#turn;
    const isSearch = Object.values(this.#choice).filter(Boolean).length > 1;
    await this.outcome.of(isSearch ? "Search" : "Load", async (options) => {
      const parameters = { ...this.#choice, offset: offset || "", limit: SHOWN };
      const { messages, total } = await this.#ask(parameters, options);
      if (turn === this.#turn) {
        this.#fill(offset === 0 ? messages : [...this.#messages, ...messages], total, messages.length === SHOWN);
      }
      return "";
    });
  }

  /** Request messages. A queue that does not exist has none; its page says so. */
  async #ask(asked, options) {
    try {
      return await this.api.get("messages", asked, options);
    } catch (error) {
      if (error.code !== "no-such-queue") throw error;
      return { messages: [], total: 0 };
    }
  }

  #fill(messages, total, isPart = false) {
    if (this.#isWhole) this.#selectWhole(false);
    const ticked = new Set([...this.#boxes].filter(([, box]) => box.checked).map(([id]) => id));
    this.#messages = messages;
    this.#boxes.clear();
    say(this.count, `${format.count(messages.length)} shown, ${format.count(total)} waiting`);
    this.list.replaceChildren(...messages.map((each) => this.#item(each, ticked)));
    say(this.note, messages.length === 0 ? "No message was found." : "");
    show(this.list, messages.length > 0);
    show(this.actions, messages.length > 0);
    show(this.retryButton, isGrave(this.queue) || messages.some(isDead));
    show(this.more, isPart);
  }

  #item(message, ticked) {
    const id = message.message_id;
    const box = el("input", { type: "checkbox", "aria-label": `Select ${id}`, checked: ticked.has(id) });
    this.#boxes.set(id, box);
    return messageItem(message, box);
  }

  #selectAll() {
    const isAll = [...this.#boxes.values()].every((box) => box.checked);
    for (const box of this.#boxes.values()) box.checked = !isAll;
  }

  /** Select the messages that match but are not shown, too, or only those ticked. */
  #selectWhole(isWhole) {
    this.#isWhole = isWhole;
    this.whole.setAttribute("aria-pressed", String(isWhole));
    for (const box of this.#boxes.values()) {
      box.checked = isWhole;
      box.disabled = isWhole;
    }
  }

  /** The selected messages that are shown, and what to call the selection. Without any, say so. */
  #selected() {
    const shown = this.#messages.filter(({ message_id: id }) => this.#boxes.get(id).checked);
    if (shown.length === 0) this.outcome.tell("Select messages first.", { isWrong: true });
    const name = this.#isWhole ? "all messages that match" : format.some(shown.length, "message");
    return { shown, name };
  }

  /** Request an operation on the selection. `countOf(answer)` returns how many messages it affected. */
  #do(what, verb, parameters, { shown }, countOf) {
    const isWhole = this.#isWhole;
    const ids = shown.map(({ message_id: id }) => id);
    return this.outcome.of(what, async (options) => {
      if (isWhole) {
        const answer = await this.api.post(verb, { ...this.#choice, ...parameters }, options);
        return `${what}: ${format.some(countOf(answer), "message")}.`;
      }
      let done = 0;
      for (let start = 0; start < ids.length; start += MAX_NAMED) {
        const id = ids.slice(start, start + MAX_NAMED);
        const request = { queue: this.queue, ...parameters, id };
        done += countOf(await this.api.post(verb, request, { signal: options.signal }));
      }
      const rest = done < ids.length ? `, ${format.count(ids.length - done)} left` : "";
      return `${what}: ${format.some(done, "message")}${rest}.`;
    });
  }

  async #finish(work) {
    const isDone = await work;
    this.onChange();
    if (!isDone) return;
    const { textContent: text } = this.outcome.text;
    await this.#load(0);
    this.outcome.tell(text);
  }

  async #drop() {
    const selection = this.#selected();
    if (selection.shown.length === 0) return;
    const answer = await ask({
      title: `Drop ${selection.name}?`,
      text: phrase`They are permanently deleted from ${this.queue}.`,
      yes: `Delete ${selection.name}`,
      isDangerous: true,
    });
    if (answer === null) return;
    this.#finish(this.#do("Drop", "purge", {}, selection, ({ purged }) => purged));
  }

  async #move() {
    const selection = this.#selected();
    if (selection.shown.length === 0) return;
    const answer = await ask({
      title: `Move ${selection.name}`,
      text: phrase`From ${this.queue} to another destination, with their headers.`,
      yes: "Move",
      fields: [{ name: "to", label: "To", value: origin(this.queue), offers: offers(this.model) }],
    });
    if (answer === null) return;
    const { to } = answer;
    this.#finish(this.#do(`Move to ${to}`, "move", { to }, selection, ({ moved }) => moved));
  }

  async #retry() {
    const selection = this.#selected();
    if (selection.shown.length > 0) this.#finish(this.#retryThem(selection));
  }

  /** Send dead letters to their original destinations, as far as the user agrees. */
  async #retryThem({ shown, name }) {
    const found = targets(shown);
    const answer = await ask({
      title: phrase`Retry ${name}?`,
      text: "Each dead letter is sent to its original destination if that is ticked; the others stay.",
      yes: "Send again",
      choices: found.map(([destination, { length }]) => this.#target(destination, length)),
    });
    if (answer === null || answer.chosen.size === 0) return false;
    const chosen = found.filter(([destination]) => answer.chosen.has(destination));
    const selection = { shown: chosen.flatMap(([, each]) => each) };
    return this.#do("Retry", "retry", { origin: [...answer.chosen] }, selection, ({ sent }) => sent);
  }

  /** A destination to choose, ticked if it matches the queue's name and no message can be lost. */
  #target(name, count) {
    if (name === "") {
      return { value: name, text: `${count} do not name their original destination`, isOff: true };
    }
    const listeners = this.model.destinations.things.get(name)?.subscribers ?? 0;
    const isSafe = waitsThere(name) || listeners > 0;
    return {
      value: name,
      text: `${this.#isWhole ? "all" : format.count(count)} to ${name}`,
      more: isSafe ? "" : "no known subscriber: they may be lost",
      isTicked: isSafe && name === origin(this.queue),
    };
  }
}

/** The destinations suggested for a field. */
export const offers = (model) => [...model.destinations.things.keys()].sort().slice(0, 500);

function searchForm() {
  const fields = FIELDS.map(([name, label, more]) =>
    el("label", {}, label, el("input", { name, type: "search", spellcheck: "false", autocomplete: "off", ...more })),
  );
  const submit = el("button", { type: "submit" }, "Search");
  const reset = el("button", { type: "reset", class: "quiet" }, "Clear");
  return el("form", { class: "search", role: "search" }, ...fields, submit, reset);
}

/** The time in a field, in milliseconds since 1970; undefined if it is empty. */
function momentOf({ value }) {
  return value === "" ? undefined : new Date(value).getTime();
}

/** The value of a dead letter's header. The original destination links to its explanation. */
function deathText(name, headers) {
  const text = headers[name];
  return name === "original-destination" ? explained(text, { destination: text }) : text;
}

/** The list item of a message: headers, then the body, as text. */
function messageItem(message, ...before) {
  const { headers, message_id: id, size, received_ms: at, deliveries } = message;
  const death = DEATH.filter((name) => name in headers);
  const about = [
    `${format.count(size)} bytes`,
    at > 0 ? format.moment(at, Date.now()) : "",
    deliveries > 0 ? `delivered ${format.count(deliveries)} times` : "",
  ].filter(Boolean);
  return el(
    "li",
    {},
    el(
      "p",
      { class: "head" },
      ...before,
      el("span", {}, explained(id, { "message-id": id })),
      ...about.map((text) => el("span", {}, text)),
      ...death.map((name) => el("span", { class: "death" }, `${name}: `, deathText(name, headers))),
    ),
    block(bodyText(message)),
    headersOf(headers),
  );
}

/** The headers of a message, initially collapsed. */
export function headersOf(headers) {
  const lines = Object.entries(headers).map(([name, value]) => `${name}:${value}`);
  return el("details", {}, el("summary", {}, "Headers"), block(lines.join("\n")));
}

/** The start of a body, as text or base64. */
export function bodyText({ body, body_base64: bytes, size }) {
  if (body === undefined) return `${format.count(size)} bytes, in base64: ${format.cut(bytes, MAX_BODY_SHOWN)}`;
  const shown = format.cut(body, MAX_BODY_SHOWN);
  return shown === body && new TextEncoder().encode(body).length < size ? `${body}…` : shown;
}
