// Subscriptions in tables, and the subscribers of one destination.

import { Refused } from "../lib/api.js";
import { byId, show } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Table, number, texts, words } from "../lib/table.js";
import { placed, sessions } from "./links.js";

/** The columns of a subscription, beside those of its client. */
export const SUBSCRIPTION = [
  placed("Destination"),
  words("Id", (item) => item.subscription_id ?? "", { mark: () => "soft" }),
  words("Acknowledges", (item) => item.ack ?? ""),
  texts("Selector", (item) => item.selector_text),
  words("Durable", (item) => (item.durable ? item.name || "yes" : "")),
  number("Prefetch", (item) => item.prefetch, format.count),
  number("Waiting", (item) => item.waiting, format.count),
  number("Unacked", (item) => item.unacked, format.count),
];

/** The subscribers of a destination, below its explanation. */
export class Subscribers {
  #turn = 0;

  constructor({ api }) {
    this.api = api;
    this.section = byId("explain-subscribers");
    this.table = new Table(this.section, {
      label: "Subscribers",
      key: (item) => [item.session_id, item.subscription_id, item.name, item.owner].join(" "),
      sort: "Waiting",
      isDescending: true,
      empty: "It has no subscribers.",
      columns: [
        sessions("Session", (item) => item.session_id),
        words("User", (item) => item.user || (item.owner ?? "")),
        ...SUBSCRIPTION,
      ],
    });
    this.hide();
  }

  hide() {
    this.#turn += 1;
    show(this.section, false);
  }

  /** Show the subscribers, if the destination has been used and is no wildcard. */
  async of(destination) {
    this.hide();
    const turn = this.#turn;
    try {
      const { subscriptions, total } = await this.api.get("destination", { destination });
      if (turn !== this.#turn) return;
      this.table.update(subscriptions, total);
      show(this.section, true);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }
}
