// The tables of connections, destinations, events and latencies.

import { drawHeat } from "./charts.js";
import { Table, byId, el, matches, say } from "./dom.js";
import { explainIn } from "./explain.js";
import * as format from "./format.js";
import { cellText, hovering, kindClass, summary } from "./overview.js";
import { percentile } from "./model.js";

/** A number column of a table. */
export const number = (name, value, text, more = {}) => ({
  name,
  value,
  text: (item) => text(value(item)),
  isNumber: true,
  ...more,
});

/** A column of text, which is the broker's or a client's: it is set as text only. */
export const words = (name, value, more = {}) => ({ name, value, text: value, ...more });

/** A column of destinations, each a link to what is known of it. */
export const place = (name) => ({
  ...words(name, (item) => item.destination),
  node: (item, cell) => {
    const { destination, session = "" } = item;
    explainIn(cell, destination, session ? { destination, session } : { destination });
  },
});

export class Connections {
  constructor(model, ownSession, redraw) {
    this.model = model;
    this.filter = byId("connections-filter");
    this.filter.addEventListener("input", redraw);
    this.table = new Table(byId("connections-table"), {
      label: "Open connections",
      key: (item) => item.session_id,
      sort: "Out /s",
      isDescending: true,
      empty: "No connection matches.",
      columns: [
        words("Session", (item) => item.session_id, {
          text: (item) =>
            item.session_id === ownSession() ? `${item.session_id} (this page)` : item.session_id,
        }),
        words("User", (item) => item.user),
        words("Address", (item) => item.remote, { mark: () => "soft" }),
        words("Via", (item) => `${item.transport} ${item.stomp_version}`.trim()),
        words("State", (item) => item.state),
        number("Subscriptions", (item) => item.subscriptions, format.count),
        number("In /s", (item) => item.rates.in, format.rate),
        number("Out /s", (item) => item.rates.out, format.rate),
        number("Bytes in", (item) => item.bytes_in_total, format.bytes),
        number("Bytes out", (item) => item.bytes_out_total, format.bytes),
        number("Silent", (item) => item.last_in_age_s, format.duration, {
          mark: (item) => (item.heartbeats_missed_total > 0 ? "wrong" : "soft"),
          title: (item) => `${item.heartbeats_missed_total} heart-beats missed`,
        }),
      ],
    });
    this.ended = new Table(byId("ended-table"), {
      label: "Connections that have ended",
      key: (item) => `${item.session} ${item.at}`,
      empty: "No connection has ended since this page was opened.",
      columns: [
        words("When", (item) => format.clock(item.at)),
        words("Why", (item) => item.reason, {
          mark: (item) => (item.reason.startsWith("client-") ? "" : "wrong"),
        }),
        words("User", (item) => item.user),
        words("Address", (item) => item.remote, { mark: () => "soft" }),
        words("Session", (item) => item.session, { mark: () => "soft" }),
        words("Lived", (item) => lived(item), { mark: () => "soft" }),
      ].map(({ value, ...column }) => column),
    });
  }

  draw() {
    const items = [...this.model.connections.things.values()];
    say(byId("connections-count"), format.count(items.length));
    const wanted = this.filter.value;
    this.table.update(
      items.filter((each) => matches(wanted, each.session_id, each.user, each.remote)),
    );
    this.ended.update(
      this.model.ended.filter((each) => matches(wanted, each.session, each.user, each.remote)),
    );
  }
}

function lived({ at, began }) {
  return began === undefined ? "" : format.duration(Math.max(0, (at - began) / 1000));
}

export class Destinations {
  constructor(model, redraw) {
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
        place("Destination"),
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
          // What nobody subscribed to is not lost: so is publish and subscribe.
          mark: (item) => {
            const isHeard = item.type !== "topic" || item.subscribers > 0;
            return item.dropped_total > 0 && isHeard ? "wrong" : "soft";
          },
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

const MAX_KINDS = 20;

export class Events {
  constructor(model, redraw) {
    this.model = model;
    this.filter = byId("events-filter");
    this.kind = byId("events-kind");
    this.kinds = new Set();
    this.paused = null;
    const pause = byId("events-pause");
    pause.addEventListener("click", () => {
      this.paused = this.paused === null ? [...model.events] : null;
      pause.setAttribute("aria-pressed", String(this.paused !== null));
      say(pause, this.paused === null ? "Pause" : "Go on");
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
        place("Destination"),
        words("Reason", (item) => item.reason),
        words("Detail", (item) => item.detail, { mark: () => "soft" }),
        words("Session", (item) => item.session, { mark: () => "soft" }),
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

export class Latency {
  constructor(model, palette, redraw) {
    Object.assign(this, { model, palette });
    this.canvas = byId("latency-heat");
    this.over = hovering(this.canvas, redraw);
    this.choice = byId("latency-destination");
    this.stage = byId("latency-stage");
    for (const input of [this.choice, this.stage]) input.addEventListener("input", redraw);
    const share = (q) => (item) => percentile(item.bucket_counts, item.le_ms, q, item.max_ms) ?? -1;
    const time = (name, value) =>
      number(name, value, (ms) => (ms < 0 ? "–" : format.millis(ms)));
    this.table = new Table(byId("latency-table"), {
      label: "Latency by destination",
      key: (item) => item.destination,
      sort: "Messages",
      isDescending: true,
      empty: "No latency was measured.",
      columns: [
        words("Destination", (item) => item.destination),
        number("Messages", (item) => item.count_total, format.brief),
        time("Median", share(0.5)),
        time("p90", share(0.9)),
        time("p99", share(0.99)),
        time("Longest", (item) => item.max_ms),
      ],
    });
  }

  draw() {
    const { model } = this;
    this.#offer(model.timedDestinations());
    const [stage, destination] = [this.stage.value, this.choice.value];
    const sum = model.recentBuckets(stage, destination);
    const found = drawHeat(this.canvas, model.points, {
      palette: this.palette,
      key: destination === "" ? stage : `${stage} ${destination}`,
      bounds: model.bounds,
      sum,
      sayBound: format.millis,
      intervalMs: 1000 * (model.interval || 5),
      hover: this.over.at,
    });
    const figures = summary(sum, model.bounds, model.longest(stage, destination));
    say(byId("latency-figures"), figures);
    this.canvas.setAttribute("aria-label", `Latency over time: ${figures}`);
    say(byId("latency-hover"), cellText(found, model.bounds));
    this.table.update([...model.latency.things.values()].filter((item) => item.stage === stage));
  }

  #offer(names) {
    const state = JSON.stringify(names);
    if (this.offered === state) return;
    this.offered = state;
    const chosen = this.choice.value;
    this.choice.replaceChildren(
      el("option", { value: "" }, "all destinations"),
      ...names.slice(0, 500).map((name) => el("option", { value: name }, name)),
    );
    this.choice.value = names.includes(chosen) ? chosen : "";
  }
}
