// Streams; each leads to its page.

import { addressOf, el } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { links, number, words } from "../lib/table.js";
import { ListView } from "../lib/view.js";

const streamLink = ({ stream }) => el("a", { href: addressOf("stream", { name: stream }) }, stream);

export class Streams extends ListView {
  constructor({ api }) {
    const table = {
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
    };
    super({ api, name: "streams", items: ({ streams }) => streams, table });
  }
}
