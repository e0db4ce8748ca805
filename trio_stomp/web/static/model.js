// What the broker's DIAG records say, put together: things of this moment, points in time, events.
// Pure: no page, no connection, no clock. All of it is bounded.

export const KEPT_MS = 15 * 60_000;
export const MAX_POINTS = 1000;
export const MAX_EVENTS = 500;
export const MAX_ENDED = 200;
/** Beyond so many things the broker tells of them by turns, and no list has everything. */
const MAX_LISTED = 10_000;
/** Of one list; more are not kept. */
const MAX_THINGS = 20_000;
const MAX_POINT_DESTINATIONS = 50;
/** Of reasons, and of what they are told of: those of the broker are fewer. */
const MAX_REASONS = 100;
/** Sessions whose beginning is remembered, for how long they lived. */
const MAX_BEGUN = 5000;

/** A list that comes in parts, what has changed or everything, and the things it tells of. */
class Listing {
  constructor(keyOf) {
    this.keyOf = keyOf;
    this.things = new Map();
    this.begin(false);
  }

  /** Forget all; `isNew`: the counters of whatever comes have begun at 0. */
  begin(isNew) {
    this.things.clear();
    this.isComplete = isNew;
    this.at = null;
    this.before = null;
    this.seen = new Set();
    this.parts = 0;
  }

  /** Take a message in; `learn(old, item, seconds)` makes the thing that is kept. */
  take(record, at, learn) {
    if (at !== this.at) {
      this.before = this.at;
      this.at = at;
      this.seen.clear();
      this.parts = 0;
    }
    const seconds = this.before === null ? 0 : (at - this.before) / 1000;
    for (const item of record.items) {
      const key = this.keyOf(item);
      const old = this.things.get(key);
      const thing = learn(old, item, seconds);
      if (old !== undefined || this.things.size < MAX_THINGS) this.things.set(key, thing);
      this.seen.add(key);
    }
    this.parts += 1;
    if (record.part === record.parts) this.#finish(record);
  }

  #finish(record) {
    const hasAll = record.full && this.parts === record.parts && this.seen.size < MAX_LISTED;
    for (const [key, thing] of this.things) {
      if (this.seen.has(key)) continue;
      // Nobody tells when a connection ends that is not open: it is of the list that has it.
      if (hasAll || !(thing.state === undefined || thing.state === "open")) this.things.delete(key);
      else thing.rest();
    }
    if (hasAll) this.isComplete = true;
  }

  /** How much a counter has grown; what is new in a list that was complete began at 0. */
  growth(old, item, field) {
    if (old === undefined) return this.isComplete ? item[field] : 0;
    return item[field] >= old[field] ? item[field] - old[field] : item[field];
  }
}

/** One thing of a list, with what it did in the last interval. */
class Thing {
  constructor(item, rates) {
    Object.assign(this, item);
    this.rates = rates;
  }

  /** It was left out of a list of changes: nothing happened. */
  rest() {
    for (const name of Object.keys(this.rates)) this.rates[name] = 0;
  }
}

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
    this.connections = new Listing((item) => item.session_id);
    this.destinations = new Listing((item) => item.destination);
    this.latency = new Listing((item) => `${item.stage} ${item.destination}`);
    this.noted = 0;
  }

  /** Take in a record; `topic` tells its table. Unknown topics are ignored, as diag.md asks. */
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
    const sums = (point.sums ??= { in: 0, out: 0, bytesIn: 0, bytesOut: 0, dropped: 0 });
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
      for (const name of Object.keys(sums)) sums[name] += grown[name];
      const per = (value) => (seconds > 0 ? value / seconds : 0);
      return new Thing(item, { in: per(grown.in), out: per(grown.out) });
    });
    elapsed ||= list.before === null ? 0 : (at - list.before) / 1000;
    if (elapsed > 0) {
      for (const name of Object.keys(sums)) point[name] = sums[name] / elapsed;
    }
  }

  #takeQueues(record, at) {
    let { items } = record;
    if (record.part === 1) {
      // The broker's own input queue comes first; a topic may bear the same name.
      [this.input, ...items] = items;
      this.queues.clear();
    }
    for (const item of items) this.queues.set(item.destination, item);
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

  #takeLatency(record, at) {
    const point = this.#point(at);
    const { heat } = point;
    point.isTimed = true;
    const list = this.latency;
    list.take(record, at, (old, item) => {
      this.bounds = item.le_ms;
      // Also of an earlier boot, whose points are still shown.
      this.longestOf.set(item.stage, Math.max(this.longestOf.get(item.stage) ?? 0, item.max_ms));
      const grown = item.bucket_counts.map((value, place) => {
        if (old === undefined) return list.isComplete ? value : 0;
        return Math.max(0, value - old.bucket_counts[place]);
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
    else grown.forEach((value, place) => (sum[place] += value));
  }

  #takeEvent(record, at) {
    if (record.name === "connect" && this.begun.size < MAX_BEGUN) {
      this.begun.set(record.session_id, at);
    }
    if (record.name === "disconnect") this.#end(record, at);
    if (record.name === "drop") this.#drop(record, at);
    // A topic that nobody listens to is nothing that happens: it would be one each interval.
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
    const remote = gone?.remote ?? detail.replace(/^from /, "");
    this.ended.unshift({ session, user, reason, at, remote, began });
    if (this.ended.length > MAX_ENDED) this.ended.pop();
    add(this.endings, reason, 1);
  }

  #drop(record, at) {
    const lost = Number.parseInt(record.detail, 10) || 0;
    const known = this.drops.get(record.reason);
    if (known === undefined && this.drops.size >= MAX_REASONS) return;
    this.drops.set(record.reason, {
      reason: record.reason,
      lost: (known?.lost ?? 0) + lost,
      destination: record.destination,
      at,
    });
  }

  /** Messages by bucket over the points kept, of one stage and one or all destinations. */
  recentBuckets(stage, destination = "") {
    const key = destination === "" ? stage : `${stage} ${destination}`;
    const sum = this.bounds.map(() => 0).concat(0);
    for (const point of this.points) {
      point.heat.get(key)?.forEach((value, place) => (sum[place] += value));
    }
    return sum;
  }

  /** The longest that a message took, of one stage and one or all destinations. */
  longest(stage, destination = "") {
    const all = this.longestOf.get(stage) ?? Infinity;
    if (destination === "") return all;
    for (const item of this.latency.things.values()) {
      if (item.stage === stage && item.destination === destination) return item.max_ms;
    }
    return all;
  }

  /** Destinations that messages were timed at, by name. */
  timedDestinations() {
    const names = new Set();
    for (const item of this.latency.things.values()) names.add(item.destination);
    return [...names].sort();
  }
}

function add(counts, key, more) {
  if (!counts.has(key) && counts.size >= MAX_REASONS) return;
  counts.set(key, (counts.get(key) ?? 0) + more);
}

/**
 * The value below which a share `q` of all lies, interpolated in its bucket; null of nothing.
 * None is above `longest`, the greatest that was seen.
 */
export function percentile(buckets, bounds, q, longest = Infinity) {
  const total = buckets.reduce((sum, value) => sum + value, 0);
  if (total === 0) return null;
  let left = q * total;
  for (let place = 0; place < buckets.length; place += 1) {
    if (left <= buckets[place] && buckets[place] > 0) {
      const low = place === 0 ? 0 : bounds[place - 1];
      // The last bucket has no bound: without the greatest it is told as that of the one before.
      const last = Number.isFinite(longest) ? longest : low;
      const high = place < bounds.length ? bounds[place] : last;
      return Math.min(low + (high - low) * (left / buckets[place]), longest);
    }
    left -= buckets[place];
  }
  return Math.min(bounds.at(-1), longest);
}
