// The page of a connection: its subscriptions, traffic, limits and events.

import { byId, el, facts, phrase, say } from "../lib/dom.js";
import { Outcome, ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { LineCard, button, card, kindClass, pageHead } from "../lib/parts.js";
import { Rights } from "../lib/rights.js";
import { Table, words } from "../lib/table.js";
import { Page } from "../lib/view.js";
import { Trail } from "../model/trail.js";
import { placed } from "./links.js";
import { gap } from "./overview.js";
import { SUBSCRIPTION } from "./subscriptions.js";

const EVENTS = [
  words("When", (item) => format.clock(item.at)),
  words("Event", (item) => item.name, { mark: (item) => `kind ${kindClass(item.name)}` }),
  placed("Destination"),
  words("Reason", (item) => item.reason),
  words("Detail", (item) => item.detail, { mark: () => "soft" }),
].map(({ value, ...column }) => column);

export class SessionPage extends Page {
  #trail = new Trail();
  #connection = null;

  constructor({ model, api, palette, redraw }) {
    super("session");
    Object.assign(this, { model, api, redraw });
    this.outcome = new Outcome(el("p"));
    this.rights = new Rights(api);
    this.close = button("Close …", () => this.#close());
    this.head = pageHead("Connections", this.close);
    this.figures = el("dl", { class: "facts" });
    const chart = (title, unit, write, fields) =>
      new LineCard({
        title,
        unit,
        say: write,
        palette,
        redraw,
        lines: [
          { name: "in", read: (point) => point[fields[0]], colour: "in" },
          { name: "out", read: (point) => point[fields[1]], colour: "out" },
        ],
      });
    this.charts = [
      chart("Frames", "a second", format.rate, ["in", "out"]),
      chart("Bytes", "a second", format.bytes, ["bytesIn", "bytesOut"]),
    ];
    const subscriptions = el("div", { class: "card flush" });
    this.subscriptions = new Table(subscriptions, {
      label: "Subscriptions",
      key: (item) => item.subscription_id,
      sort: "Unacked",
      isDescending: true,
      empty: "It has no subscriptions.",
      columns: SUBSCRIPTION,
    });
    const events = el("div", { class: "card flush" });
    this.events = new Table(events, {
      label: "Events of this connection",
      key: (item) => item.id,
      empty: "No events are known.",
      columns: EVENTS,
    });
    this.loader = new Loader({
      load: () => api.get("connection", { session: this.name }),
      onAnswer: (answer) => this.#take(answer),
      onProblem: (error) => this.#miss(error),
      outcome: this.outcome,
    });
    byId("connection").append(
      this.head.head,
      this.outcome.line,
      card("Figures", [], this.figures),
      el("div", { class: "columns top" }, ...this.charts.map(({ card: each }) => each)),
      el("h2", {}, "Subscriptions"),
      subscriptions,
      el("h2", {}, "Events"),
      events,
    );
  }

  visit(search) {
    super.visit(search);
    this.rights.apply([{ button: this.close, operation: "close" }]);
  }

  begin(session) {
    say(this.head.name, session);
  }

  refresh(period) {
    // An ended session never returns.
    if (!this.hasEnded) super.refresh(period);
  }

  clear() {
    this.#trail = new Trail();
    this.#connection = null;
    this.hasEnded = false;
    this.subscriptions.update([]);
    facts(this.figures, []);
  }

  #take(connection) {
    this.#connection = connection;
    this.#trail.addConnection(connection);
    this.redraw();
  }

  #miss(error) {
    if (error.code !== "no-such-session") return false;
    this.hasEnded = true;
    const ended = this.model.ended.find((each) => each.session === this.name);
    this.outcome.tell(ended ? `It has ended: ${ended.reason}.` : "This connection has ended.");
    return true;
  }

  draw() {
    const { points } = this.#trail;
    for (const chart of this.charts) chart.draw(points, gap(this.model));
    this.events.update(this.model.events.filter(({ session }) => session === this.name));
    const connection = this.#connection;
    if (connection === null) return;
    const badges = [connection.state, connection.user].filter(Boolean);
    this.head.badges.replaceChildren(...badges.map((each) => el("span", { class: "badge" }, each)));
    facts(this.figures, figures(connection));
    this.subscriptions.update(connection.subscriptions, connection.total);
  }

  async #close() {
    const { name: session } = this;
    const user = this.#connection?.user;
    const answer = await ask({
      title: "Close this connection?",
      text: phrase`${user ? `${user}, session` : "Session"} ${session}: the client gets an ERROR, and may connect again. Its unacknowledged messages go to other consumers.`,
      yes: "Close",
      isDangerous: true,
    });
    if (answer === null) return;
    await this.outcome.of("Close", async () => {
      await this.api.post("close", { session });
      return "The connection was closed.";
    });
    this.hasEnded = true;
  }
}

/** The longest time without a byte that was agreed upon. */
const interval = (ms) => (ms ? `every ${format.millis(ms)}` : "none");

function figures(each) {
  const age = (Date.parse(each.ts) - Date.parse(each.connected_at)) / 1000;
  return [
    ["User", each.user || "anonymous"],
    ["Address", each.remote],
    ["Protocol", `STOMP ${each.stomp_version} over ${each.transport}`],
    ["Connected", format.duration(age)],
    ["Silent for", format.duration(each.last_in_age_s)],
    ["Frames", `${format.count(each.frames_in_total)} in, ${format.count(each.frames_out_total)} out`],
    ["Bytes", `${format.bytes(each.bytes_in_total)} in, ${format.bytes(each.bytes_out_total)} out`],
    ["Unsent", `${format.bytes(each.outbox_bytes)} of at most ${format.bytes(each.outbox_limit_bytes)}`],
    ["Most unsent", format.bytes(each.outbox_peak_bytes)],
    ["Writing blocked for", format.millis(each.send_blocked_ms_total)],
    ["Heart-beats", `${interval(each.heartbeat_expect_ms)} in, ${interval(each.heartbeat_send_ms)} out`],
    ["Heart-beats missed", format.count(each.heartbeats_missed_total)],
    ["ERRORs", format.count(each.errors_total)],
  ];
}
