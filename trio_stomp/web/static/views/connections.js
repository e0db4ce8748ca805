// Open connections, and recently ended ones.

import { byId, matches } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Table, number, words } from "../lib/table.js";
import { ListView } from "../lib/view.js";
import { sessions } from "./links.js";

const COLUMNS = (ownSession, rates) => [
  sessions("Session", (item) => item.session_id, {
    mark: () => "",
  }),
  words("User", (item) => item.user, {
    text: (item) => `${item.user}${item.session_id === ownSession() ? " (this page)" : ""}`,
  }),
  words("Address", (item) => item.remote, { mark: () => "soft" }),
  words("Via", (item) => `${item.transport} ${item.stomp_version}`.trim()),
  words("State", (item) => item.state),
  number("Subscriptions", (item) => item.subscriptions, format.count, { order: "subscriptions" }),
  number("In /s", (item) => rates(item).in, format.rate, { order: "frames_in" }),
  number("Out /s", (item) => rates(item).out, format.rate, { order: "frames_out" }),
  number("Bytes in", (item) => item.bytes_in_total, format.bytes, { order: "bytes_in" }),
  number("Bytes out", (item) => item.bytes_out_total, format.bytes, { order: "bytes_out" }),
  number("Unsent", (item) => item.pending_bytes, format.bytes, { order: "pending_bytes" }),
  number("Silent", (item) => item.last_in_age_s, format.duration, {
    order: "idle",
    mark: (item) => (item.heartbeats_missed_total > 0 ? "wrong" : "soft"),
    title: (item) => `${item.heartbeats_missed_total} heart-beats missed`,
  }),
];

export class Connections extends ListView {
  constructor({ model, api, ownSession, redraw }) {
    const rates = ({ session_id: session }) =>
      model.connections.things.get(session)?.rates ?? { in: 0, out: 0 };
    const table = {
      label: "Open connections",
      key: (item) => item.session_id,
      sort: "Out /s",
      isDescending: true,
      empty: "No connection matches.",
      columns: COLUMNS(ownSession, rates),
    };
    super({ api, name: "connections", items: ({ connections }) => connections, table });
    this.model = model;
    this.state = byId("connections-state");
    this.state.addEventListener("input", () => this.loader.now());
    this.filter.addEventListener("input", redraw);
    this.ended = endedTable();
  }

  parameters() {
    return { sort: this.table.order, state: this.state.value };
  }

  draw() {
    const wanted = this.filter.value;
    this.ended.update(
      this.model.ended.filter((each) => matches(wanted, each.session, each.user, each.remote)),
    );
  }
}

function endedTable() {
  return new Table(byId("ended-table"), {
    label: "Connections that have ended",
    key: (item) => `${item.session} ${item.at}`,
    empty: "No connection has ended since this page was opened.",
    columns: [
      words("When", (item) => format.clock(item.at)),
      words("Why", (item) => (item.error ? `${item.reason}: ${item.error}` : item.reason), {
        mark: (item) => (item.reason.startsWith("client-") ? "" : "wrong"),
      }),
      words("User", (item) => item.user),
      words("Address", (item) => item.remote, { mark: () => "soft" }),
      words("Session", (item) => item.session, { mark: () => "soft" }),
      words("Lived", (item) => lived(item), { mark: () => "soft" }),
    ].map(({ value, ...column }) => column),
  });
}

function lived({ at, began }) {
  return began === undefined ? "" : format.duration(Math.max(0, (at - began) / 1000));
}
