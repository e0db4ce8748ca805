// The state of the broker from DIAG records: current things, points in time, events.
// Pure: no page, no connection, no clock. Its size is bounded.

import { Listing, Thing } from "./listing.js";
import { KEPT_MS, MAX_POINTS, Trail, depthsOf } from "./trail.js";

export { MAX_POINTS };
export const MAX_EVENTS = 500;
export const MAX_ENDED = 200;
const MAX_POINT_DESTINATIONS = 50;
/** Queues with a history. The broker's list is no longer. */
const MAX_TRAILS = 1000;
/** Limit of reasons of drops and disconnects; the broker has fewer. */
const MAX_REASONS = 100;
/** Limit of sessions whose start is remembered, to show their duration. */
const MAX_BEGUN = 5000;

export class Model {
  constructor() {
    this.identity = { broker: "", epoch: "", boot: "" };
    this.interval = 0;
    this.points = [];
    this.events = [];
    this.ended = [];
    this.endings = new Map();
    this.begun = new Map();
    this.drops = new Map();
    this.bounds = [];
    this.longestOf = new Map();
    this.session = null;
    this.process = null;
    this.stale = null;
    this.input = null;
    this.queues = new Map();
    /** The history of queues by name. */
    this.trails = new Map();
    this.connections = new Listing((item) => item.session_id);
    this.destinations = new Listing((item) => item.destination);
    this.latency = new Listing((item) => `${item.stage} ${item.destination}`);
    this.noted = 0;
  }

  /** Process a record of `topic`. Unknown topics are ignored, as diag.md requires. */
  apply(topic, record) {
    const at = Date.parse(record.ts);
    if (record.boot !== this.identity.boot) this.#begin(record, at);
    if (record.interval_s > 0) this.interval = record.interval_s;
    switch (topic) {
      case "DIAG/session":
        this.session = record;
        Object.assign(this.#point(at), {
          connections: record.stomp_connected,
          subscriptions: record.subscriptions,
        });
        break;
      case "DIAG/stale":
        this.stale = record;
        this.#point(at).parked = record.stale_queue_size;
        break;
      case "DIAG/process":
        this.#takeProcess(record, at);
        break;
      case "DIAG/connections":
        this.#takeConnections(record, at);
        break;
      case "DIAG/destinations":
        this.#takeDestinations(record, at);
        break;
      case "DIAG/queues":
        this.#takeQueues(record, at);
        break;
      case "DIAG/latency":
        this.#takeLatency(record, at);
        break;
      default:
        if (topic.startsWith("DIAG/event/")) this.#takeEvent(record, at);
    }
  }

  #begin(record, at) {
    const isNew = this.identity.boot !== "" && this.identity.broker === record.broker_id;
    this.identity = { broker: record.broker_id, epoch: record.epoch, boot: record.boot };
    this.session = this.process = this.stale = this.input = null;
    this.queues.clear();
    this.begun.clear();
    for (const listing of [this.connections, this.destinations, this.latency]) {
      listing.begin(isNew);
    }
    if (isNew) this.#note({ name: "start", reason: "", detail: "the broker was started" }, at);
  }

  /** Forget the points, as those that follow leave a hole behind them. */
  forgetPoints() {
    this.points = [];
    this.trails.clear();
  }

  #point(at) {
    let point = this.points.at(-1);
    if (point?.at === at) return point;
    point = this.points.find((each) => each.at === at);
    if (point) return point;
    point = { at, heat: new Map() };
    this.points.push(point);
    while (this.points.length > MAX_POINTS || this.points[0].at < at - KEPT_MS) {
      this.points.shift();
    }
    return point;
  }

  #takeProcess(record, at) {
    const point = this.#point(at);
    const old = this.process;
    const cpu = (each) => each.cpu_user_s_total + each.cpu_sys_s_total;
    if (old) {
      const seconds = (at - Date.parse(old.ts)) / 1000;
      if (seconds > 0) point.cpu = (100 * (cpu(record) - cpu(old))) / seconds;
    }
    point.memory = record.rss_bytes;
    point.lag = record.loop_lag_ms_p99;
    this.process = record;
  }

  #takeConnections(record, at) {
    const list = this.connections;
    list.take(record, at, (old, item, seconds) => {
      const per = (field) => (seconds > 0 ? list.growth(old, item, field) / seconds : 0);
      return new Thing(item, { in: per("frames_in_total"), out: per("frames_out_total") });
    });
  }

  #takeDestinations(record, at) {
    const point = this.#point(at);
    const list = this.destinations;
    const sums = (point.sums ??= { in: 0, out: 0, bytesIn: 0, bytesOut: 0, dropped: 0, lost: 0 });
    let elapsed = 0;
    list.take(record, at, (old, item, seconds) => {
      elapsed = seconds;
      const grown = {
        in: list.growth(old, item, "enqueued_total"),
        out: list.growth(old, item, "delivered_total"),
        bytesIn: list.growth(old, item, "bytes_in_total"),
        bytesOut: list.growth(old, item, "bytes_out_total"),
        dropped: list.growth(old, item, "dropped_total"),
      };
      grown.lost = isUnheard(item) ? 0 : grown.dropped;
      for (const name of Object.keys(sums)) sums[name] += grown[name];
      const per = (value) => (seconds > 0 ? value / seconds : 0);
      const rates = { in: per(grown.in), out: per(grown.out) };
      this.trails.get(item.destination)?.note(at, rates);
      return new Thing(item, rates);
    });
    elapsed ||= list.before === null ? 0 : (at - list.before) / 1000;
    if (elapsed > 0) {
      for (const name of Object.keys(sums)) point[name] = sums[name] / elapsed;
    }
  }

  #takeQueues(record, at) {
    let { items } = record;
    if (record.part === 1) {
      // The broker's own input queue comes first. A topic may have the same name.
      [this.input, ...items] = items;
      this.queues.clear();
    }
    for (const item of items) {
      this.queues.set(item.destination, item);
      this.#trace(item, at);
    }
    if (record.part === record.parts) {
      let waiting = 0;
      let unacked = 0;
      for (const item of this.queues.values()) {
        waiting += item.input_depth;
        unacked += item.ack_depth;
      }
      Object.assign(this.#point(at), { waiting, unacked });
    }
  }

  #trace(item, at) {
    let trail = this.trails.get(item.destination);
    if (trail === undefined) {
      if (this.trails.size >= MAX_TRAILS) this.trails.delete(this.trails.keys().next().value);
      trail = new Trail();
      this.trails.set(item.destination, trail);
    }
    // A list of changes leaves out idle destinations.
    trail.note(at, { in: 0, out: 0, ...depthsOf(item) });
  }

  #takeLatency(record, at) {
    const point = this.#point(at);
    const { heat } = point;
    point.isTimed = true;
    const list = this.latency;
    list.take(record, at, (old, item) => {
      this.bounds = item.le_ms;
      // Include earlier boots, as their points are still shown.
      this.longestOf.set(item.stage, Math.max(this.longestOf.get(item.stage) ?? 0, item.max_ms));
      const grown = item.bucket_counts.map((value, index) => {
        if (old === undefined) return list.isComplete ? value : 0;
        return Math.max(0, value - old.bucket_counts[index]);
      });
      if (grown.some((value) => value > 0)) {
        this.#warm(heat, item.stage, grown);
        if (heat.size < 2 * MAX_POINT_DESTINATIONS) {
          this.#warm(heat, `${item.stage} ${item.destination}`, grown);
        }
      }
      return new Thing(item, {});
    });
  }

  #warm(heat, key, grown) {
    const sum = heat.get(key);
    if (sum === undefined) heat.set(key, [...grown]);
    else grown.forEach((value, index) => (sum[index] += value));
  }

  #takeEvent(record, at) {
    if (record.name === "connect" && this.begun.size < MAX_BEGUN) {
      this.begun.set(record.session_id, at);
    }
    if (record.name === "disconnect") this.#end(record, at);
    if (record.name === "drop") this.#drop(record, at);
    // Ignore topics without subscribers: each would add an event per interval.
    if (record.reason !== "no-subscriber") this.#note(record, at);
  }

  #note(event, at) {
    const { name, session_id = "", user = "", destination = "", reason, detail } = event;
    this.noted += 1;
    this.events.unshift({
      id: this.noted,
      at,
      name,
      session: session_id,
      user,
      destination,
      reason,
      detail,
    });
    if (this.events.length > MAX_EVENTS) this.events.pop();
  }

  #end(record, at) {
    const gone = this.connections.things.get(record.session_id);
    this.connections.things.delete(record.session_id);
    const { session_id: session, user, reason, detail } = record;
    const began = gone ? Date.parse(gone.connected_at) : this.begun.get(session);
    this.begun.delete(session);
    const [, from = "", error = ""] = /^(?:from )?(.*?)(?:; (.*))?$/s.exec(detail) ?? [];
    this.ended.unshift({ session, user, reason, error, at, remote: gone?.remote ?? from, began });
    if (this.ended.length > MAX_ENDED) this.ended.pop();
    add(this.endings, reason, 1);
  }

  #drop(record, at) {
    const lost = Number.parseInt(record.detail, 10) || 0;
    const previous = this.drops.get(record.reason);
    if (previous === undefined && this.drops.size >= MAX_REASONS) return;
    this.drops.set(record.reason, {
      reason: record.reason,
      lost: (previous?.lost ?? 0) + lost,
      destination: record.destination,
      at,
    });
  }

  /** The messages in each bucket over all points, of a stage and one or all destinations. */
  recentBuckets(stage, destination = "") {
    const key = destination === "" ? stage : `${stage} ${destination}`;
    const sum = this.bounds.map(() => 0).concat(0);
    for (const point of this.points) {
      point.heat.get(key)?.forEach((value, index) => (sum[index] += value));
    }
    return sum;
  }

  /** The maximum latency of a stage, at one or all destinations. */
  longest(stage, destination = "") {
    const all = this.longestOf.get(stage) ?? Infinity;
    if (destination === "") return all;
    for (const item of this.latency.things.values()) {
      if (item.stage === stage && item.destination === destination) return item.max_ms;
    }
    return all;
  }

  /** The sorted names of destinations with latencies. */
  timedDestinations() {
    const names = new Set();
    for (const item of this.latency.things.values()) names.add(item.destination);
    return [...names].sort();
  }
}

/** Return whether it is a topic without subscribers. Its messages do not count as lost. */
export const isUnheard = ({ type, subscribers }) => type === "topic" && subscribers === 0;

function add(counts, key, more) {
  if (!counts.has(key) && counts.size >= MAX_REASONS) return;
  counts.set(key, (counts.get(key) ?? 0) + more);
}
