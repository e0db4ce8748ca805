// All destinations: subscribers, rates, drops. A queue leads to its page.

import { byId, matches, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Table, number, words } from "../lib/table.js";
import { isUnheard } from "../model/model.js";
import { placed } from "./links.js";

export class Destinations {
  constructor({ model, redraw }) {
    this.model = model;
    this.filter = byId("destinations-filter");
    this.filter.addEventListener("input", redraw);
    this.table = new Table(byId("destinations-table"), {
      label: "Destinations",
      key: (item) => item.destination,
      sort: "In /s",
      isDescending: true,
      empty: "No destination matches.",
      columns: [
        placed("Destination"),
        words("Kind", (item) => item.type, { mark: () => "soft" }),
        number("Subscribers", (item) => item.subscribers, format.count),
        number("In /s", (item) => item.rates.in, format.rate),
        number("Out /s", (item) => item.rates.out, format.rate),
        number("Depth", (item) => item.depth, format.brief, {
          mark: (item) => (item.depth > 0 ? "strong" : "soft"),
        }),
        number("Unacked", (item) => item.unacked, format.brief),
        number("Sent", (item) => item.enqueued_total, format.brief),
        number("Delivered", (item) => item.delivered_total, format.brief),
        number("Dropped", (item) => item.dropped_total, format.brief, {
          mark: (item) => (item.dropped_total > 0 && !isUnheard(item) ? "wrong" : "soft"),
        }),
      ],
    });
  }

  draw() {
    const items = [...this.model.destinations.things.values()];
    say(byId("destinations-count"), format.count(items.length));
    this.table.update(items.filter((each) => matches(this.filter.value, each.destination)));
  }
}
