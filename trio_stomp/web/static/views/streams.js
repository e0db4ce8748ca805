// Streams; each leads to its page.

import { addressOf, byId, el, say } from "../lib/dom.js";
import { Outcome } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { ROWS_SHOWN, Table, links, number, words } from "../lib/table.js";
import { View } from "../lib/view.js";

const streamLink = ({ stream }) => el("a", { href: addressOf("stream", { name: stream }) }, stream);

export class Streams extends View {
  constructor({ api }) {
    super();
    this.filter = byId("streams-filter");
    this.outcome = new Outcome(byId("streams-result"));
    this.table = new Table(byId("streams-table"), {
      label: "Streams",
      key: (item) => item.stream,
      sort: "Messages",
      isDescending: true,
      empty: "No stream matches.",
      columns: [
        links("Stream", (item) => item.stream, streamLink),
        number("Messages", (item) => item.messages, format.count),
        number("First", (item) => item.first, format.count),
        number("Next", (item) => item.next, format.count),
        number("Size", (item) => item.bytes, format.bytes),
        number("At most", (item) => item.max_bytes, format.bytes),
        number("Kept for", (item) => item.max_age_ms, format.millis),
        words("Newest", (item) => (item.newest_ms > 0 ? format.moment(item.newest_ms, Date.now()) : "–")),
        words("Kept", ({ stored }) => (stored ? "on disk" : "in memory")),
      ],
    });
    this.loader = new Loader({
      load: () => api.get("streams", { name: this.filter.value.trim(), limit: ROWS_SHOWN }),
      onAnswer: ({ streams, total }) => {
        say(byId("streams-count"), format.count(total));
        this.table.update(streams, total);
      },
      outcome: this.outcome,
    });
    this.filter.addEventListener("input", () => this.loader.now());
  }

  clear() {
    this.table.update([]);
  }
}
