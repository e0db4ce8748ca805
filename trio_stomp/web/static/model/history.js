// History from before the page was opened: samples of the DIAG stream, one for each interval.
// Rates are differences of counters, so they are exact over an interval.

/** Records to examine for a sample. The broker's intervals begin with the records used here. */
const LOOKED = 60;
/** Limit of a record's body in bytes. Lists are longer, and are not read. */
const MAX_BYTES = 1500;
const AT_ONCE = 4;
const STREAM = "/stream/DIAG";

/** The time spans to choose from: {name, ms, readings}. */
export const SPANS = [
  { name: "15 minutes", ms: 0, readings: 0 },
  { name: "1 hour", ms: 3_600_000, readings: 60 },
  { name: "6 hours", ms: 6 * 3_600_000, readings: 72 },
  { name: "24 hours", ms: 24 * 3_600_000, readings: 96 },
  { name: "7 days", ms: 7 * 24 * 3_600_000, readings: 112 },
];

/** The first span, where its records are too many to read. */
export const SAMPLED = { ms: 900_000, readings: 60 };

/** The figures of a point that are added up over partitions. Those of nodes are in no stream. */
const ADDED = ["subscriptions", "in", "out", "dropped"];
/** Partitions for which all readings are made; with more, there are fewer readings of each. */
const FULL = 4;
const FEWEST = 12;

/**
 * Read the span before `now`. Returns {points, since, stepMs}; `since` is the time of the oldest.
 *
 * If a stream holds less than the span, the samples are closer together. Each partition has a
 * stream; the points of several are sums.
 */
export async function readBack(api, { ms, readings }, now, partitions = 1) {
  const numbers = partitions > 1 ? Array.from({ length: partitions }, (_, number) => number) : [undefined];
  const read = (partition, parameters) =>
    api.get("records", { stream: STREAM, bytes: MAX_BYTES, partition, ...parameters });
  const firsts = await Promise.all(numbers.map((partition) => read(partition, { limit: 1 })));
  const oldest = firsts.map(({ records }) => records[0]?.written_ms ?? now);
  const begin = Math.max(now - ms, ...oldest);
  const count = Math.max(Math.min(readings, FEWEST), Math.floor(readings / Math.max(1, partitions / FULL)));
  const stepMs = (now - begin) / count;
  if (stepMs === 0) return { points: [], since: now, stepMs: ms / readings };
  const parts = [];
  for (const partition of numbers) {
    parts.push(await readPart((parameters) => read(partition, parameters), begin, stepMs, count));
  }
  return { points: parts.length > 1 ? addUp(parts, stepMs) : parts[0], since: begin, stepMs };
}

/** Read the points of one stream. */
async function readPart(read, begin, stepMs, readings) {
  const times = Array.from({ length: readings }, (_, index) => Math.ceil(begin + index * stepMs));
  const samples = [];
  const worker = async () => {
    for (let time = times.shift(); time !== undefined; time = times.shift()) {
      const { records } = await read({ time, limit: LOOKED });
      samples.push(sampleOf(records));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return rollUp(samples);
}

/** Add the points of several streams up, where all have one of about the same time. */
export function addUp([first, ...others], stepMs) {
  return first.flatMap((point) => {
    const near = others.map((points) => points.find(({ at }) => Math.abs(at - point.at) < stepMs / 2));
    if (near.includes(undefined)) return [];
    const sums = ADDED.map((name) => [name, near.reduce((sum, each) => sum + each[name], point[name])]);
    return { at: point.at, heat: new Map(), ...Object.fromEntries(sums.filter(([, sum]) => !Number.isNaN(sum))) };
  });
}

/** Read the span of a queue before `now`, as `readBack` does that of the broker. */
export async function readQueue(api, queue, { ms, readings }, now) {
  const parameters = { queue, since: now - ms, points: readings };
  const { points, since_ms: since, step_ms: stepMs } = await api.get("history", parameters);
  return { points: points.map(queuePoint), since, stepMs };
}

function queuePoint({ ts_ms: at, waiting, unacked, oldest_age_s: age, in_per_s: taken, out_per_s: out }) {
  const figures = Object.entries({ age: waiting > 0 ? age : 0, in: taken, out });
  return { at, waiting, unacked, ...Object.fromEntries(figures.filter(([, value]) => value !== null)) };
}

/** The first records of the broker and of its process. */
export function sampleOf(records) {
  const found = {};
  for (const { headers, body } of records) {
    const name = headers.destination;
    if (name !== "DIAG/session" && name !== "DIAG/process") continue;
    try {
      found[name.slice("DIAG/".length)] ??= JSON.parse(body);
    } catch {
      // It was cut off at MAX_BYTES.
    }
  }
  return found;
}

/** Convert samples to points in time: gauges, and rates since the previous sample. */
export function rollUp(samples) {
  const complete = samples.filter(({ session }) => session !== undefined);
  const timeOf = ({ session }) => Date.parse(session.ts);
  complete.sort((one, other) => timeOf(one) - timeOf(other));
  const points = [];
  complete.forEach((sample, index) => {
    const at = timeOf(sample);
    if (at === points.at(-1)?.at) return;
    const { session, process } = sample;
    const gauges = { connections: session.stomp_connected, subscriptions: session.subscriptions };
    if (process) Object.assign(gauges, { memory: process.rss_bytes, lag: process.loop_lag_ms_p99 });
    points.push({ at, heat: new Map(), ...gauges, ...rates(complete[index - 1], sample) });
  });
  return points;
}

function rates(before, { session, process }) {
  const old = before?.session;
  const seconds = old === undefined ? 0 : (Date.parse(session.ts) - Date.parse(old.ts)) / 1000;
  // Counters restart with the broker.
  if (!(seconds > 0) || old.boot !== session.boot) return {};
  const per = (field) => Math.max(0, session[field] - old[field]) / seconds;
  const found = { in: per("received_total"), out: per("delivered_total"), dropped: per("dropped_total") };
  if (process && before.process) found.cpu = (100 * (cpu(process) - cpu(before.process))) / seconds;
  return found;
}

const cpu = (process) => process.cpu_user_s_total + process.cpu_sys_s_total;
