// The page of a queue: its figures over time, its consumers, its policy, its messages.

import { Outcome } from "../lib/dialogs.js";
import { byId, el, facts, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { LineCard, Tile, card, pageHead } from "../lib/parts.js";
import { Rights } from "../lib/rights.js";
import { Table, number, texts, words } from "../lib/table.js";
import { Page } from "../lib/view.js";
import { readQueue } from "../model/history.js";
import { Trail } from "../model/trail.js";
import { explained } from "./explain.js";
import { explainLink, sessions } from "./links.js";
import { Messages } from "./messages.js";
import { gap } from "./overview.js";
import { QueueActions } from "./queue_actions.js";
import { SendForm } from "./sending.js";
import { Span } from "./span.js";

const CONSUMERS = [
  sessions("Session", (item) => item.session_id),
  words("User", (item) => item.user),
  words("Subscription", (item) => item.subscription_id, { mark: () => "soft" }),
  words("Acknowledges", (item) => item.ack),
  texts("Selector", (item) => item.selector_text),
  number("Prefetch", (item) => item.prefetch, format.count),
  number("Holds", (item) => item.unacked, format.count),
  number("Oldest", (item) => item.oldest_unacked_age_s, format.duration, {
    text: ({ unacked, oldest_unacked_age_s: age }) => (unacked > 0 ? format.duration(age) : "–"),
  }),
  {
    name: "Messages held",
    node: ({ unacked_messages: ids }, cell) => {
      const state = ids.join();
      if (cell.dataset.shown === state) return;
      cell.dataset.shown = state;
      const links = ids.flatMap((id) => [explained(id, { "message-id": id }), " "]);
      cell.replaceChildren(el("span", {}, ...links));
    },
  },
];

export class QueuePage extends Page {
  /** The history from answers, for a queue that DIAG does not report. */
  #trail = new Trail();
  #queue = null;

  constructor({ model, api, palette, redraw }) {
    super("name");
    Object.assign(this, { model, redraw, context: { model, api } });
    this.outcome = new Outcome(el("p"));
    this.messages = new Messages({ api, model, onChange: () => this.loader.now() });
    this.rights = new Rights(api);
    this.sending = new SendForm({ api, onSent: () => this.#lookAgain() });
    this.loader = new Loader({
      load: () => api.get("queue", { queue: this.name }),
      onAnswer: (answer) => this.#take(answer),
      onProblem: (error) => this.#miss(error),
      outcome: this.outcome,
    });
    const read = (span, now) => readQueue(api, this.name, span, now);
    this.span = new Span({ read, redraw });
    this.#build(palette, redraw);
  }

  #build(palette, redraw) {
    this.actions = new QueueActions({
      ...this.context,
      outcome: this.outcome,
      onDone: () => this.#lookAgain(),
    });
    this.explain = el("span");
    this.head = pageHead("Queues", this.explain, ...this.actions.buttons);
    const tiles = el("div", { class: "tiles" });
    this.tiles = new Map(TILES.map(({ name }) => [name, new Tile(tiles, name)]));
    const lines = (title, unit, write, ...all) =>
      new LineCard({ title, unit, say: write, palette, redraw, lines: all });
    this.charts = [
      lines(
        "Messages",
        "",
        format.brief,
        { name: "waiting", read: (point) => point.waiting, colour: "in" },
        { name: "unacknowledged", read: (point) => point.unacked, colour: "warn" },
      ),
      lines(
        "Rates",
        "a second",
        format.rate,
        { name: "in", read: (point) => point.in, colour: "in" },
        { name: "out", read: (point) => point.out, colour: "out" },
      ),
      lines("Age", "of the oldest", format.age, {
        name: "waiting",
        read: (point) => point.age,
        colour: "in",
      }),
    ];
    this.policy = el("dl", { class: "facts" });
    this.figures = el("dl", { class: "facts" });
    const consumers = el("div", { class: "card flush" });
    this.consumers = new Table(consumers, {
      label: "Consumers",
      key: (item) => `${item.session_id} ${item.subscription_id}`,
      sort: "Holds",
      isDescending: true,
      empty: "It has no consumers.",
      columns: CONSUMERS,
    });
    this.palette = palette;
    byId("queue").append(
      this.head.head,
      this.outcome.line,
      tiles,
      el("div", { class: "tools" }, ...this.span.parts),
      el("div", { class: "columns" }, ...this.charts.map(({ card: each }) => each), card("Figures", [], this.figures)),
      el("h2", {}, "Consumers"),
      consumers,
      el("div", { class: "columns top" }, this.messages.card, this.sending.card),
      card("Policy", [], this.policy),
    );
  }

  begin(name) {
    say(this.head.name, name);
    this.explain.replaceChildren(explainLink(name));
    this.actions.of(name);
    this.sending.to(name);
    this.messages.show(name);
  }

  visit(search) {
    super.visit(search);
    if (this.name === "") return;
    this.messages.look();
    this.rights.apply([this.actions, this.messages, this.sending].flatMap((each) => each.needs()));
  }

  clear() {
    this.#trail = new Trail();
    this.span.forget();
    this.messages.clear();
    this.#blank();
  }

  /** Show no figures, as there are none. */
  #blank() {
    this.#queue = null;
    for (const tile of this.tiles.values()) tile.show(["–", ""]);
    this.head.badges.replaceChildren();
    this.consumers.update([]);
    facts(this.policy, []);
    facts(this.figures, []);
  }

  #lookAgain() {
    this.loader.now();
    this.messages.look();
  }

  #take(queue) {
    this.#queue = queue;
    this.#trail.addQueue(queue);
    this.redraw();
  }

  #miss(error) {
    if (error.code !== "no-such-queue") return false;
    this.#blank();
    if (this.outcome.isHidden) {
      this.outcome.tell("The queue does not exist: queues exist while they have messages or consumers, or if they were created.");
    }
    this.redraw();
    return true;
  }

  draw() {
    const queue = this.#queue;
    const { points } = this.model.trails.get(this.name) ?? this.#trail;
    const shown = this.span.shown(points, gap(this.model));
    for (const chart of this.charts) chart.draw(shown.points, shown.gapMs);
    if (queue === null) return;
    const now = points.at(-1) ?? {};
    for (const { name, value, read, colour } of TILES) {
      const tile = this.tiles.get(name);
      tile.show(value(queue, now));
      tile.chart(points, read, this.palette.get(colour), gap(this.model));
    }
    this.head.badges.replaceChildren(...badges(queue));
    this.actions.show(queue);
    this.consumers.update(queue.consumers, queue.total);
    facts(this.figures, figures(queue));
    facts(this.policy, Object.entries(queue.policy).map(([name, value]) => [name, String(value) || "–"]));
  }
}

const TILES = [
  {
    name: "Waiting",
    read: (point) => point.waiting,
    colour: "in",
    value: (queue) => [format.brief(queue.input_depth), format.bytes(queue.input_bytes)],
  },
  {
    name: "Unacknowledged",
    read: (point) => point.unacked,
    colour: "warn",
    value: (queue) => [
      format.brief(queue.ack_depth),
      queue.ack_depth > 0 ? `the oldest for ${format.duration(queue.oldest_unacked_age_s)}` : "",
    ],
  },
  {
    name: "In and out",
    read: (point) => point.in,
    colour: "out",
    value: (queue, now) => [`${format.rate(now.in)}/s`, `${format.rate(now.out)}/s acknowledged`],
  },
  {
    name: "Oldest",
    read: (point) => point.age,
    colour: "soft",
    value: (queue) => [
      queue.input_depth > 0 ? format.duration(queue.oldest_input_age_s) : "–",
      format.some(queue.total, "consumer"),
    ],
  },
];

function badges({ paused, declared, destination }) {
  const texts = [paused ? "paused" : "", declared ? "created" : ""].filter(Boolean);
  return texts.map((text) => el("span", { class: "badge warn", title: destination }, text));
}

function figures(queue) {
  return [
    ["Sent to it", format.count(queue.enqueued_total)],
    ["Acknowledged", format.count(queue.acked_total)],
    ["Rejected", format.count(queue.nacked_total)],
    ["Delivered again", format.count(queue.redelivered_total)],
    ["Expired", format.count(queue.expired_total)],
    ["Dropped", format.count(queue.dropped_total)],
    ["Waiting for redelivery", format.count(queue.delayed)],
    ["Size", format.bytes(queue.input_bytes)],
  ];
}
