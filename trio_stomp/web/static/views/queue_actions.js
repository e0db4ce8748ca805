// What can be done to a whole queue, each after a question if something is lost by it.

import { ask } from "../lib/dialogs.js";
import { say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { button } from "../lib/parts.js";
import { offers } from "./messages.js";

export class QueueActions {
  #queue = null;

  /** `outcome` tells how each went; `onDone()` is called after it. */
  constructor({ api, model, outcome, onDone }) {
    Object.assign(this, { api, model, outcome, onDone });
    this.name = "";
    this.pause = button("Pause", () => this.#pause());
    this.buttons = [
      this.pause,
      button("Move all …", () => this.#move()),
      button("Redeliver …", () => this.#redeliver()),
      button("Purge …", () => this.#purge()),
      button("Delete …", () => this.#delete()),
    ];
  }

  /** Whose buttons they are now. */
  of(name) {
    this.name = name;
    this.#queue = null;
  }

  /** What is known of it. */
  show(queue) {
    this.#queue = queue;
    say(this.pause, queue.paused ? "Resume" : "Pause");
  }

  /** Ask, if there is something to ask, then do what `verb` says, and tell the outcome. */
  async #do({ verb, what, question, parameters = () => ({}), told }) {
    const { name: queue } = this;
    const answer = question === undefined ? {} : await ask(question);
    if (answer === null) return;
    await this.outcome.of(`${what} ${queue}`, async (options) => {
      const asked = { queue, ...parameters(answer) };
      return `${queue}: ${told(await this.api.post(verb, asked, options))}.`;
    });
    this.onDone();
  }

  #pause() {
    const [verb, what] = this.#queue?.paused ? ["resume", "Resume"] : ["pause", "Pause"];
    return this.#do({
      verb,
      what,
      told: ({ paused }) => (paused ? "hands out nothing until it is resumed" : "hands out messages again"),
    });
  }

  #purge() {
    const waiting = this.#queue?.input_depth ?? 0;
    return this.#do({
      verb: "purge",
      what: "Purge",
      question: {
        title: `Purge ${this.name}?`,
        text: `Permanently deletes the messages waiting there, now ${format.count(waiting)}. Unacknowledged messages stay with their consumers.`,
        yes: `Delete ${format.some(waiting, "message")}`,
        isDangerous: true,
      },
      told: ({ purged }) => `${format.some(purged, "message")} deleted`,
    });
  }

  #move() {
    const waiting = format.some(this.#queue?.input_depth ?? 0, "message");
    return this.#do({
      verb: "move",
      what: "Move from",
      question: {
        title: `Move all messages of ${this.name}`,
        text: `${waiting} waiting now; unacknowledged messages stay with their consumers.`,
        yes: "Move",
        fields: [{ name: "to", label: "To", offers: offers(this.model) }],
      },
      parameters: ({ to }) => ({ to }),
      told: ({ moved, to }) => `${format.some(moved, "message")} moved to ${to}`,
    });
  }

  #redeliver() {
    const held = format.some(this.#queue?.ack_depth ?? 0, "unacknowledged message");
    return this.#do({
      verb: "redeliver",
      what: "Redeliver",
      question: {
        title: `Redeliver what consumers of ${this.name} hold?`,
        text: `${held}: they return to the queue and are delivered again, perhaps to others. What a consumer is doing with them is done twice.`,
        yes: "Redeliver",
        isDangerous: true,
      },
      told: ({ redelivered }) => `${format.some(redelivered, "message")} returned to the queue`,
    });
  }

  #delete() {
    const { input_depth: waiting = 0, ack_depth: held = 0, total: consumers = 0 } = this.#queue ?? {};
    const messages = format.some(waiting + held, "message");
    return this.#do({
      verb: "delete",
      what: "Delete",
      question: {
        title: `Delete ${this.name}?`,
        text: `Permanently deletes the queue with its ${messages}, and closes the connections of its ${format.some(consumers, "consumer")}.`,
        yes: "Delete",
        isDangerous: true,
      },
      // Without it, the broker deletes an empty queue only.
      parameters: () => ({ force: waiting + held + consumers > 0 ? "1" : undefined }),
      told: () => "deleted",
    });
  }
}
