// The overview: tiles with sparklines, rates, latency, and short lists.

import { drawHeat, drawLines } from "../lib/charts.js";
import { byId, el, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Tile, hovering, kindClass } from "../lib/parts.js";
import { partitionsOf } from "../lib/poll.js";
import { readBack } from "../model/history.js";
import { percentile } from "../model/percentile.js";
import { placeLink } from "./links.js";
import { Span } from "./span.js";

const LISTED = 6;
const CONNECTION_NOISE = new Set(["subscribe", "unsubscribe"]);

/** The words for a cell of a heat map. */
export function cellText(found, bounds) {
  if (found === null) return "";
  const { point, bucket, value } = found;
  const low = bucket === 0 ? 0 : bounds[bucket - 1];
  const range =
    bucket < bounds.length
      ? `${format.millis(low)} to ${format.millis(bounds[bucket])}`
      : `over ${format.millis(low)}`;
  return `${format.clock(point.at)}: ${format.count(value)} messages took ${range}`;
}

/** The gap in milliseconds at which a line breaks. */
export const gap = (model) => 2500 * (model.interval || 5);

const TILES = [
  {
    name: "Received",
    read: (point) => point.in,
    value: (model, now) => [`${format.rate(now.in)}/s`, `${format.bytes(now.bytesIn)}/s of bodies`],
    colour: "in",
  },
  {
    name: "Delivered",
    read: (point) => point.out,
    value: (model, now) => [`${format.rate(now.out)}/s`, `${format.bytes(now.bytesOut)}/s`],
    colour: "out",
  },
  {
    name: "Sessions",
    read: (point) => point.connections,
    value: ({ session }) => [
      format.count(session?.stomp_connected),
      `${format.some(session?.websockets, "WebSocket")}, ${format.some(session?.subscriptions, "subscription")}`,
    ],
    colour: "mark",
  },
  {
    name: "Waiting",
    read: (point) => (point.waiting === undefined ? undefined : point.waiting + (point.parked ?? 0)),
    value: (model, now) => [
      format.brief(now.waiting === undefined ? undefined : now.waiting + (now.parked ?? 0)),
      `${format.brief(now.unacked)} unacknowledged, ${format.brief(now.parked)} parked`,
    ],
    colour: "mark",
  },
  {
    name: "Latency, p99",
    read: (point) => point.p99,
    value: (model, now) => [
      format.millis(now.p99),
      `median ${format.millis(now.p50)}`,
    ],
    colour: "hot",
  },
  {
    name: "Dropped",
    read: (point) => point.dropped,
    value: (model, now) => [
      `${format.rate(now.dropped)}/s`,
      `${format.brief(model.lost)} in the last ${format.duration(model.stretch)}`,
    ],
    colour: "bad",
    isWrong: (model, now) => now.lost > 0,
  },
  {
    name: "Processor",
    read: (point) => point.cpu,
    value: ({ process }, now) => [
      now.cpu === undefined ? "–" : `${format.rate(now.cpu)} %`,
      `turns up to ${format.millis(process?.loop_lag_ms_p99)}`,
    ],
    colour: "soft",
  },
  {
    name: "Memory",
    read: (point) => point.memory,
    value: ({ process }) => [
      format.bytes(process?.rss_bytes),
      process?.store_bytes == null
        ? `up ${format.duration(process?.uptime_s)}`
        : `up ${format.duration(process?.uptime_s)}, ${format.bytes(process.store_bytes)} stored`,
    ],
    colour: "soft",
  },
];

export class Overview {
  constructor({ model, api, palette, redraw }) {
    Object.assign(this, { model, palette });
    this.span = new Span({ read: async (span, now) => readBack(api, span, now, await partitionsOf(api)), redraw });
    document.querySelector("#overview .tools").append(...this.span.parts);
    this.tiles = TILES.map((tile) => ({ tile, shown: new Tile(byId("tiles"), tile.name) }));
    this.rates = byId("rates");
    this.heat = byId("heat");
    this.overRates = hovering(this.rates, redraw);
    this.overHeat = hovering(this.heat, redraw);
  }

  forget() {
    this.span.forget();
  }

  fill() {
    this.span.fill();
  }

  draw() {
    const { model } = this;
    for (const point of model.points) addPercentiles(point, model);
    const now = latest(model.points);
    const shown = this.span.shown(model.points, gap(model));
    this.#drawTiles(now, shown);
    this.#drawRates(now, shown);
    this.#drawHeat();
    drawBars(byId("busiest"), busiest(model), "No messages in the last interval.");
    drawBars(byId("drops"), drops(model), "No drops so far. Dead letters are none: they wait in their queue.", true);
    drawBars(byId("endings"), endings(model), "No connection has ended.");
    drawFeed(byId("latest"), model.events);
  }

  #drawTiles(now, { points: all, gapMs }) {
    const { model } = this;
    const { points } = model;
    const lost = points.reduce((sum, point) => sum + (point.sums?.dropped ?? 0), 0);
    const stretch = points.length ? (points.at(-1).at - points[0].at) / 1000 : 0;
    const figures = { ...model, lost, stretch };
    for (const { tile, shown } of this.tiles) {
      shown.show(tile.value(figures, now), tile.isWrong?.(figures, now) ?? false);
      shown.chart(all, tile.read, this.palette.get(tile.colour), gapMs);
    }
  }

  #drawRates(now, { points, gapMs }) {
    const { palette } = this;
    const lines = [
      { read: (point) => point.in, colour: palette.get("in") },
      { read: (point) => point.out, colour: palette.get("out") },
    ];
    const hover = this.overRates.at?.x ?? null;
    const settings = { palette, say: format.rate, gapMs, hover };
    const point = drawLines(this.rates, points, lines, settings);
    const figures = (each) =>
      `${format.rate(each.in)} received, ${format.rate(each.out)} delivered a second`;
    this.rates.setAttribute("aria-label", `Messages over time; now ${figures(now)}`);
    say(byId("rates-hover"), point === null ? "" : `${format.clock(point.at)}: ${figures(point)}`);
  }

  #drawHeat() {
    const { model, palette } = this;
    const sum = model.recentBuckets("delivery");
    const found = drawHeat(this.heat, model.points, {
      palette,
      key: "delivery",
      bounds: model.bounds,
      sum,
      sayBound: format.millis,
      intervalMs: 1000 * (model.interval || 5),
      hover: this.overHeat.at,
    });
    const figures = summary(sum, model.bounds, model.longest("delivery"));
    this.heat.setAttribute("aria-label", `Latency over time: ${figures}`);
    say(byId("heat-hover"), found === null ? figures : cellText(found, model.bounds));
  }
}

/** The median and p99 of a latency histogram as text. */
export function summary(sum, bounds, longest) {
  const [half, most] = [0.5, 0.99].map((q) => percentile(sum, bounds, q, longest));
  if (half === null) return "no latency was measured";
  return `median ${format.millis(half)}, p99 ${format.millis(most)}`;
}

function addPercentiles(point, model) {
  const buckets = point.heat.get("delivery");
  if (buckets === undefined) return;
  const longest = model.longest("delivery");
  point.p50 = percentile(buckets, model.bounds, 0.5, longest);
  point.p99 = percentile(buckets, model.bounds, 0.99, longest);
}

/** The newest value of each figure. The last point may be incomplete. */
export function latest(points) {
  const [before, last] = [points.at(-2) ?? {}, points.at(-1) ?? {}];
  const now = { ...before, ...last };
  if (last.isTimed && last.p99 === undefined) now.p50 = now.p99 = undefined;
  return now;
}

function busiest(model) {
  return [...model.destinations.things.values()]
    .map((each) => ({ destination: each.destination, value: each.rates.in + each.rates.out, each }))
    .filter(({ value }) => value > 0)
    .map(({ each, ...rest }) => ({
      ...rest,
      text: `${format.rate(each.rates.in)} in, ${format.rate(each.rates.out)} out /s`,
    }));
}

function drops(model) {
  return [...model.drops.values()].map(({ reason, lost, destination }) => ({
    name: destination ? `${reason}: ` : reason,
    destination,
    value: lost,
    text: format.brief(lost),
  }));
}

function endings(model) {
  return [...model.endings].map(([name, value]) => ({ name, value, text: format.brief(value) }));
}

/** Draw a list of bars, the longest first. */
function drawBars(list, items, nothing, isBad = false) {
  items.sort((one, other) => other.value - one.value);
  const shown = items.slice(0, LISTED);
  const state = JSON.stringify(shown);
  if (list.drawn === state) return;
  list.drawn = state;
  list.classList.toggle("bad", isBad);
  const most = shown[0]?.value || 1;
  list.replaceChildren(
    ...shown.map(({ name = "", destination = "", value, text }) =>
      el(
        "li",
        {},
        el("span", { class: "name", title: name + destination }, name, placeLink(destination)),
        el("span", {}, text),
        el("meter", { min: 0, max: most, value, "aria-hidden": "true" }),
      ),
    ),
  );
  if (shown.length === 0) list.append(el("li", { class: "none" }, nothing));
}

/** An event in one line. */
export function eventText({ session, user, destination, reason, detail }) {
  return [user || session, destination, reason, detail].filter(Boolean).join(" · ");
}

function drawFeed(list, events) {
  const shown = events.filter(({ name }) => !CONNECTION_NOISE.has(name)).slice(0, LISTED + 2);
  const state = shown.map(({ id }) => id).join();
  if (list.drawn === state) return;
  list.drawn = state;
  list.replaceChildren(
    ...shown.map((event) =>
      el(
        "li",
        {},
        el("time", {}, format.clock(event.at)),
        el("span", { class: `kind ${kindClass(event.name)}` }, event.name),
        el("span", { class: "what", title: eventText(event) }, eventText(event)),
      ),
    ),
  );
  if (shown.length === 0) list.append(el("li", { class: "none" }, "Nothing has happened yet."));
}
