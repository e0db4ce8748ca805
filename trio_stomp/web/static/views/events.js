// Events, as they happen.

import { byId, el, matches, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { kindClass } from "../lib/parts.js";
import { Table, words } from "../lib/table.js";
import { placed, sessions } from "./links.js";

const MAX_KINDS = 20;

export class Events {
  constructor({ model, redraw }) {
    this.model = model;
    this.filter = byId("events-filter");
    this.kind = byId("events-kind");
    this.kinds = new Set();
    this.paused = null;
    const pause = byId("events-pause");
    pause.addEventListener("click", () => {
      this.paused = this.paused === null ? [...model.events] : null;
      pause.setAttribute("aria-pressed", String(this.paused !== null));
      say(pause, this.paused === null ? "Pause" : "Resume");
      redraw();
    });
    for (const input of [this.filter, this.kind]) input.addEventListener("input", redraw);
    this.table = new Table(byId("events-table"), {
      label: "Events, the newest first",
      key: (item) => item.id,
      empty: "Nothing has happened yet, or nothing matches.",
      columns: [
        words("When", (item) => format.clock(item.at)),
        words("Event", (item) => item.name, { mark: (item) => `kind ${kindClass(item.name)}` }),
        words("User", (item) => item.user),
        placed("Destination"),
        words("Reason", (item) => item.reason),
        words("Detail", (item) => item.detail, { mark: () => "soft" }),
        sessions("Session", (item) => item.session),
      ].map(({ value, ...column }) => column),
    });
  }

  draw() {
    this.#offerKinds();
    const kind = this.kind.value;
    const wanted = this.filter.value;
    this.table.update(
      (this.paused ?? this.model.events).filter(
        (each) =>
          (kind === "" || each.name === kind) &&
          matches(wanted, each.user, each.destination, each.reason, each.session, each.detail),
      ),
    );
  }

  #offerKinds() {
    for (const { name } of this.model.events) {
      if (this.kinds.has(name) || this.kinds.size >= MAX_KINDS) continue;
      this.kinds.add(name);
      this.kind.append(el("option", {}, name));
    }
  }
}
