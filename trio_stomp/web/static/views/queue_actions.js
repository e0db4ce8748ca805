// Operations on a whole queue, with a confirmation if messages may be lost or duplicated.

import { ask } from "../lib/dialogs.js";
import { phrase, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { button } from "../lib/parts.js";
import { offers } from "./messages.js";

export class QueueActions {
  #queue = null;

  /** `outcome` shows the results. `onDone()` is called after each operation. */
  constructor({ api, model, outcome, onDone }) {
    Object.assign(this, { api, model, outcome, onDone });
    this.name = "";
    this.pause = button("Pause", () => this.#pause());
    this.move = button("Move all …", () => this.#move());
    this.redeliver = button("Redeliver …", () => this.#redeliver());
    this.purge = button("Purge …", () => this.#purge());
    this.remove = button("Delete …", () => this.#delete());
    this.buttons = [this.pause, this.move, this.redeliver, this.purge, this.remove];
  }

  /** The buttons with the operations that they request. */
  needs() {
    const { pause, move, redeliver, purge, remove } = this;
    const found = Object.entries({ pause, move, redeliver, purge, delete: remove });
    return found.map(([operation, each]) => ({ button: each, operation, at: this.name }));
  }

  /** Choose the queue to operate on. */
  of(name) {
    this.name = name;
    this.#queue = null;
  }

  /** Adapt the buttons to a record of the queue. */
  show(queue) {
    this.#queue = queue;
    say(this.pause, queue.paused ? "Resume" : "Pause");
  }

  /** Ask `question`, if any, then request the operation `verb`, and show the outcome. */
  async #do({ verb, what, question, parameters = () => ({}), describe }) {
    const { name: queue } = this;
    const answer = question === undefined ? {} : await ask(question);
    if (answer === null) return;
    await this.outcome.of(phrase`${what} ${queue}`, async (options) => {
      const request = { queue, ...parameters(answer) };
      return phrase`${queue}: ${describe(await this.api.post(verb, request, options))}.`;
    });
    this.onDone();
  }

  #pause() {
    const [verb, what] = this.#queue?.paused ? ["resume", "Resume"] : ["pause", "Pause"];
    return this.#do({
      verb,
      what,
      describe: ({ paused }) => (paused ? "hands out nothing until it is resumed" : "hands out messages again"),
    });
  }

  #purge() {
    const waiting = this.#queue?.input_depth ?? 0;
    return this.#do({
      verb: "purge",
      what: "Purge",
      question: {
        title: phrase`Purge ${this.name}?`,
        text: `Permanently deletes the messages waiting there, now ${format.count(waiting)}. Unacknowledged messages stay with their consumers.`,
        yes: `Delete ${format.some(waiting, "message")}`,
        isDangerous: true,
      },
      describe: ({ purged }) => `${format.some(purged, "message")} deleted`,
    });
  }

  #move() {
    const waiting = format.some(this.#queue?.input_depth ?? 0, "message");
    return this.#do({
      verb: "move",
      what: "Move from",
      question: {
        title: phrase`Move all messages of ${this.name}`,
        text: `${waiting} waiting now; unacknowledged messages stay with their consumers.`,
        yes: "Move",
        fields: [{ name: "to", label: "To", offers: offers(this.model) }],
      },
      parameters: ({ to }) => ({ to }),
      describe: ({ moved, to }) => `${format.some(moved, "message")} moved to ${to}`,
    });
  }

  #redeliver() {
    const unacked = format.some(this.#queue?.ack_depth ?? 0, "unacknowledged message");
    return this.#do({
      verb: "redeliver",
      what: "Redeliver",
      question: {
        title: phrase`Redeliver the unacknowledged messages of ${this.name}?`,
        text: `${unacked}: they return to the queue and are delivered again, perhaps to other consumers, so they may be processed twice.`,
        yes: "Redeliver",
        isDangerous: true,
      },
      describe: ({ redelivered }) => `${format.some(redelivered, "message")} returned to the queue`,
    });
  }

  #delete() {
    const { input_depth: waiting = 0, ack_depth: unacked = 0, total: consumers = 0 } = this.#queue ?? {};
    const messages = format.some(waiting + unacked, "message");
    return this.#do({
      verb: "delete",
      what: "Delete",
      question: {
        title: phrase`Delete ${this.name}?`,
        text: `Permanently deletes the queue with its ${messages}, and closes the connections of its ${format.some(consumers, "consumer")}.`,
        yes: "Delete",
        isDangerous: true,
      },
      // Without force, the broker deletes only an empty, unused queue.
      parameters: () => ({ force: waiting + unacked + consumers > 0 ? "1" : undefined }),
      describe: () => "deleted",
    });
  }
}
