// Queues: what waits in them, looking at it, deleting it, and trying dead letters again.

import { browse, MAX_BROWSED, purge, retry } from "./actions.js";
import { Table, byId, el, matches, say, show } from "./dom.js";
import { explained, explainIn } from "./explain.js";
import * as format from "./format.js";
import { number, place } from "./lists.js";
import { isGrave, origin, targets, waitsThere } from "./retry.js";

const MAX_BODY_SHOWN = 4000;
const MAX_SHOWN = 200;
const DEATH = ["original-destination", "x-death-reason", "x-death-count"];

export class Queues {
  #refused = new Set();
  #graves = new Set();
  #busy = new Map();

  constructor(model, credentials, redraw) {
    Object.assign(this, { model, credentials, redraw });
    this.filter = byId("queues-filter");
    this.filter.addEventListener("input", redraw);
    this.result = byId("queues-result");
    this.dialog = byId("browser");
    byId("browser-close").addEventListener("click", () => this.dialog.close());
    // A link leads to another view.
    this.dialog.addEventListener("click", ({ target }) => target.closest("a") && this.dialog.close());
    this.table = new Table(byId("queues-table"), {
      label: "Queues",
      key: (item) => item.destination,
      sort: "Waiting",
      isDescending: true,
      empty: "No messages are waiting. A queue exists from its first use.",
      columns: [
        place("Queue"),
        number("Waiting", (item) => item.waiting, format.brief, { mark: () => "strong" }),
        number("Unacked", (item) => item.ack_depth, format.brief),
        number("Consumers", (item) => item.consumers, format.count, {
          // A prefetch tells of consumers that the destination does not count.
          text: ({ consumers, prefetch }) =>
            consumers === 0 && prefetch > 0 ? "some" : format.count(consumers),
        }),
        number("In /s", (item) => item.in, format.rate),
        number("Out /s", (item) => item.out, format.rate),
        number("Size", (item) => item.input_bytes, format.bytes),
        number("Oldest", (item) => item.oldest_input_age_s, format.duration, {
          text: ({ oldest_input_age_s: age }) => (age > 0 ? format.duration(age) : "–"),
          title: ({ oldest_unacked_age_s: age }) =>
            "age of the oldest message" +
            (age > 0 ? `; the oldest unacknowledged was delivered ${format.duration(age)} ago` : ""),
        }),
        number("Again", (item) => item.redelivered_total, format.brief, {
          title: () => "delivered again",
        }),
        number("Expired", (item) => item.expired_total, format.brief),
        number("Dropped", (item) => item.dropped_total, format.brief, {
          mark: (item) => (item.dropped_total > 0 ? "wrong" : "soft"),
        }),
        { name: "Actions", isHidden: true, node: (item, cell) => this.#actions(item, cell) },
      ],
    });
  }

  draw() {
    const items = this.#items();
    say(byId("queues-count"), format.count(items.length));
    this.table.update(items.filter((each) => matches(this.filter.value, each.destination)));
    const { input } = this.model;
    say(
      byId("input-queue"),
      input === null
        ? ""
        : `The broker's own input queue holds ${format.count(input.input_depth)} frames.`,
    );
  }

  #items() {
    const { queues, destinations } = this.model;
    return [...queues.values()].map((queue) => {
      const destination = destinations.things.get(queue.destination);
      return {
        ...queue,
        waiting: queue.input_depth + queue.stale_depth,
        isQueue: queue.destination.startsWith("/queue/"),
        consumers: destination?.subscribers ?? 0,
        in: destination?.rates.in ?? 0,
        out: destination?.rates.out ?? 0,
      };
    });
  }

  #actions(item, cell) {
    const name = item.destination;
    if (!item.isQueue) {
      say(cell, item.stale_depth > 0 ? "parked" : "");
      return;
    }
    if (cell.firstChild === null) cell.append(this.#buttons(name));
    const busy = this.#busy.get(name);
    for (const button of cell.querySelectorAll("button")) {
      const { action } = button.dataset;
      const isRefused = this.#refused.has(`${action} ${name}`);
      show(button, action !== "retry" || isGrave(name) || this.#graves.has(name));
      button.disabled = isRefused || busy !== undefined;
      button.title = isRefused ? "The broker refused it: you lack the right" : "";
      say(button, busy?.action === action ? busy.text : LABELS[action]);
    }
  }

  #buttons(name) {
    const doing = { browse: this.browse, retry: this.retry, purge: this.purge };
    const buttons = Object.keys(doing).map((action) =>
      el(
        "button",
        {
          type: "button",
          class: "small",
          "data-action": action,
          "aria-label": `${LABELS[action]} ${name}`,
          onclick: () => this.#run(action, name, doing[action]),
        },
        LABELS[action],
      ),
    );
    return el("div", { class: "actions" }, ...buttons);
  }

  /** Run an action of one queue, tell how it went, and remember what is not allowed. */
  async #run(action, name, work) {
    this.#busy.set(name, { action, text: "…" });
    show(this.result, false);
    this.redraw();
    try {
      const text = await work.call(this, name, (done) => {
        this.#busy.set(name, { action, text: `${format.brief(done)}…` });
        this.redraw();
      });
      if (text) this.#tell(text, false);
    } catch (error) {
      if (error.code === "not-authorized") this.#refused.add(`${action} ${name}`);
      const code = error.code ? ` (${error.code})` : "";
      this.#tell(`${LABELS[action]} ${name}: ${error.message}${code}`, true);
    } finally {
      this.#busy.delete(name);
      this.redraw();
    }
  }

  #tell(text, isWrong) {
    say(this.result, text);
    this.result.classList.toggle("wrong", isWrong);
    show(this.result, true);
  }

  async browse(name) {
    const { messages, isAll } = await browse(this.credentials(), name, MAX_SHOWN);
    // A policy may bury dead letters anywhere.
    if (messages.some(({ headers }) => "x-death-reason" in headers)) this.#graves.add(name);
    explainIn(byId("browser-title"), name, { destination: name });
    say(byId("browser-note"), browsedText(messages.length, isAll));
    byId("browser-messages").replaceChildren(...messages.map(messageItem));
    this.dialog.showModal();
    return "";
  }

  async purge(name, onProgress) {
    const queue = this.model.queues.get(name);
    const count = queue?.input_depth ?? 0;
    if (count === 0) return `${name}: no messages are waiting there.`;
    const isSure = await ask({
      title: `Purge ${name}?`,
      text: `Permanently deletes the first ${format.some(count, "message")} waiting there. Unacknowledged messages stay with their consumers.`,
      yes: `Delete ${format.count(count)}`,
      isDangerous: true,
    });
    if (isSure === null) return "";
    const done = await purge(this.credentials(), name, count, onProgress);
    return `${name}: ${format.some(done, "message")} deleted.`;
  }

  async retry(name, onProgress) {
    const { messages, isAll } = await browse(this.credentials(), name, MAX_BROWSED);
    if (messages.length === 0) return `${name}: there are no dead letters.`;
    const choices = targets(messages).map(([target, count]) =>
      this.#choice(target, count, origin(name)),
    );
    const chosen = await ask({
      title: `Resend dead letters?`,
      text: `${isAll ? "" : "The first "}${format.some(messages.length, "letter")} of ${name}: each is resent to its original destination if that is ticked; the others stay.`,
      yes: "Send again",
      choices,
    });
    if (chosen === null || chosen.size === 0) return "";
    const { sent, left } = await retry(
      this.credentials(),
      name,
      messages.length,
      chosen,
      onProgress,
    );
    const kept = left > 0 ? `, ${format.count(left)} left` : "";
    return `${name}: ${format.some(sent, "letter")} sent again${kept}.`;
  }

  /** One destination; ticked if the queue's own name vouches for it, and nothing can be lost. */
  #choice(target, count, expected) {
    if (target === "") {
      return { value: target, text: `${count} do not name their original destination`, isOff: true };
    }
    const listeners = this.model.destinations.things.get(target)?.subscribers ?? 0;
    const isSafe = waitsThere(target) || listeners > 0;
    return {
      value: target,
      text: `${format.count(count)} to ${target}`,
      more: isSafe ? "" : "no known subscriber: they may be lost",
      isTicked: isSafe && target === expected,
    };
  }
}

const LABELS = { browse: "Browse", retry: "Retry", purge: "Purge" };

function browsedText(count, isAll) {
  if (count === 0) return "No messages are waiting there.";
  const end = isAll ? "all waiting messages" : "there are more";
  return `${format.some(count, "message")}, in order; ${end}. Nothing was taken.`;
}

/** What a header says of a death; where it happened, it can be asked why. */
function deathText(name, headers) {
  const text = headers[name];
  return name === "original-destination" ? explained(text, { destination: text }) : text;
}

/** A message as it is shown: headers, then the body, as text. */
export function messageItem(message) {
  const { headers } = message;
  const id = headers["message-id"] ?? "";
  const death = DEATH.filter((name) => name in headers);
  const rest = Object.entries(headers).map(([name, value]) => `${name}:${value}`);
  return el(
    "li",
    {},
    el(
      "p",
      { class: "head" },
      el("span", {}, explained(id, { "message-id": id })),
      el("span", {}, `${format.count(message.binaryBody.length)} bytes`),
      ...death.map((name) => el("span", { class: "death" }, `${name}: `, deathText(name, headers))),
    ),
    el("pre", {}, format.cut(message.body, MAX_BODY_SHOWN)),
    el("details", {}, el("summary", {}, "Headers"), el("pre", {}, rest.join("\n"))),
  );
}

/** Ask in a dialog: null = no, else the values that are ticked. */
export function ask({ title, text, yes, choices = [], isDangerous = false }) {
  const dialog = byId("confirm");
  const form = byId("confirm-form");
  say(byId("confirm-title"), title);
  say(byId("confirm-text"), text);
  const button = byId("confirm-yes");
  say(button, yes);
  button.className = isDangerous ? "danger" : "main";
  const boxes = choices.map(({ value, text: label, more = "", isTicked = false, isOff = false }) => {
    const box = el("input", { type: "checkbox", disabled: isOff, checked: isTicked });
    box.target = value;
    const words_ = el("span", {}, label);
    if (more) words_.append(el("small", {}, more));
    return { box, label: el("label", {}, box, words_) };
  });
  byId("confirm-choices").replaceChildren(...boxes.map(({ label }) => label));
  return new Promise((resolve) => {
    let answer = null;
    form.onsubmit = (event) => {
      event.preventDefault();
      answer = new Set(boxes.filter(({ box }) => box.checked).map(({ box }) => box.target));
      dialog.close();
    };
    byId("confirm-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
    byId("confirm-no").focus();
  });
}
