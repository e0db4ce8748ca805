// The list of queues; each leads to its page.

import { byId, el, phrase, say } from "../lib/dom.js";
import { ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { links, number } from "../lib/table.js";
import { ListView } from "../lib/view.js";
import { queueLink } from "./links.js";

const COLUMNS = [
  links("Queue", (item) => item.destination, nameOf),
  number("Waiting", (item) => item.waiting, format.brief, { order: "depth", mark: () => "strong" }),
  number("Unacked", (item) => item.ack_depth, format.brief, { order: "unacked" }),
  number("Consumers", (item) => item.consumers, format.count, { order: "consumers" }),
  number("In /s", (item) => item.in, format.rate),
  number("Out /s", (item) => item.out, format.rate),
  number("Size", (item) => item.input_bytes, format.bytes, { order: "bytes" }),
  number("Oldest", (item) => item.oldest_input_age_s ?? 0, format.duration, {
    text: ({ oldest_input_age_s: age }) => (age > 0 ? format.duration(age) : "–"),
    title: ({ oldest_unacked_age_s: age }) =>
      "age of the oldest message" +
      (age > 0 ? `; the oldest unacknowledged was delivered ${format.duration(age)} ago` : ""),
  }),
  number("Again", (item) => item.redelivered_total, format.brief, {
    order: "redelivered",
    title: () => "delivered again",
  }),
  number("Expired", (item) => item.expired_total, format.brief),
  number("Dropped", (item) => item.dropped_total, format.brief, {
    mark: (item) => (item.dropped_total > 0 ? "wrong" : "soft"),
  }),
];

function nameOf({ destination, paused }) {
  const link = queueLink(destination);
  if (!paused) return link;
  return el("span", {}, link, " ", el("span", { class: "badge warn" }, "paused"));
}

export class Queues extends ListView {
  constructor({ model, api }) {
    const table = {
      label: "Queues",
      key: (item) => item.destination,
      sort: "Waiting",
      isDescending: true,
      empty: "No queue matches. A queue exists from its first use.",
      columns: COLUMNS,
    };
    super({ api, name: "queues", items: ({ queues }) => queues.map((each) => this.#row(each)), table });
    this.model = model;
    this.state = byId("queues-state");
    this.state.addEventListener("input", () => this.loader.now());
    byId("queues-create").addEventListener("click", () => this.#create());
  }

  parameters() {
    const state = this.state.value;
    // Parked messages have only one order.
    return { sort: state === "parked" ? "" : this.table.order, state };
  }

  take(answer) {
    super.take(answer);
    say(byId("input-queue"), `The broker's own input queue holds ${format.count(answer.input.input_depth)} frames.`);
  }

  /** A queue with its rates from DIAG. */
  #row(queue) {
    const { in: taken = 0, out = 0 } = this.model.destinations.things.get(queue.destination)?.rates ?? {};
    return { ...queue, in: taken, out, waiting: queue.input_depth + queue.stale_depth };
  }

  async #create() {
    const answer = await ask({
      title: "Create a queue",
      text: "It exists until it is deleted, even without messages and consumers. (Other queues exist from their first use.)",
      yes: "Create",
      fields: [{ name: "queue", label: "Queue", value: "/queue/" }],
    });
    if (answer === null) return;
    const { queue } = answer;
    await this.outcome.of(phrase`Create ${queue}`, async () => {
      const { created } = await this.api.post("create", { queue });
      return created ? phrase`${queue} was created.` : phrase`${queue} existed before.`;
    });
    this.loader.now();
  }
}
