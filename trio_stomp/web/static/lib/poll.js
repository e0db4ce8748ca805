// Figures of a cluster with partitions: no DIAG topic has the whole, so they are requested.

const PERIOD_S = 5;
const MOST = 1000;

/** The topics whose records are made from the answers. */
const FIGURES = new Set(
  ["session", "stale", "process", "connections", "destinations", "queues", "latency"].map(
    (name) => `DIAG/${name}`,
  ),
);
/** The identity of all partitions together, which no restart of one of them changes. */
const WHOLE = { broker_id: "cluster", boot: "cluster", epoch: "" };

/** The records of DIAG topics with the figures of these answers, as pairs of topic and record. */
export function recordsOf({ overview, connections, destinations, queues }) {
  const head = { ...WHOLE, ts: overview.ts, interval_s: PERIOD_S };
  const list = (items, total) => ({ ...head, part: 1, parts: 1, full: total <= items.length, items });
  // Each partition has topics of DIAG.
  const places = destinations.destinations.filter(({ type, partition }) => type !== "diag" || partition === 0);
  const latency = places.flatMap(({ destination, latency }) =>
    Object.entries(latency).map(([stage, times]) => ({ destination, stage, ...times, le_ms: destinations.le_ms })),
  );
  return [
    ["DIAG/session", { ...head, ...overview.session }],
    ["DIAG/stale", { ...head, ...overview.stale }],
    ["DIAG/process", { ...head, ...overview.process }],
    ["DIAG/connections", list(connections.connections, connections.total)],
    ["DIAG/destinations", list(places, destinations.total - destinations.destinations.length + places.length)],
    ["DIAG/queues", list([queues.input, ...queues.queues], queues.total + 1)],
    ["DIAG/latency", list(latency, latency.length)],
  ];
}

/** The number of partitions of the cluster; 1 for a broker without, or if the user may not know. */
export async function partitionsOf(api) {
  try {
    const { settings } = await api.get("settings", { name: "cluster_partitions" });
    return Number(settings[0]?.value) || 1;
  } catch {
    return 1;
  }
}

/** Requests the figures again and again, if the broker is a cluster with partitions. */
export class Poll {
  #timer = 0;
  #isOn = false;

  constructor({ api, onRecord, period = 1000 * PERIOD_S }) {
    Object.assign(this, { api, onRecord, period });
  }

  /** Begin, or begin again after a login. */
  async start() {
    clearTimeout(this.#timer);
    this.#isOn = (await partitionsOf(this.api)) > 1;
    if (this.#isOn) await this.#ask();
  }

  /** Request nothing more. */
  stop() {
    clearTimeout(this.#timer);
  }

  /** Take a record of one partition's DIAG stream: events, but no figures if all are requested. */
  take(topic, record) {
    if (!this.#isOn) this.onRecord(topic, record);
    else if (!FIGURES.has(topic)) this.onRecord(topic, { ...record, ...WHOLE });
  }

  async #ask() {
    const { api } = this;
    const ask = (verb, parameters) => api.get(verb, { limit: MOST, ...parameters });
    try {
      const [overview, connections, destinations, queues] = await Promise.all([
        api.get("overview"),
        ask("connections"),
        ask("destinations", { sort: "delivered" }),
        ask("queues", { sort: "held" }),
      ]);
      for (const [topic, record] of recordsOf({ overview, connections, destinations, queues })) {
        this.onRecord(topic, record);
      }
    } catch {
      // A partition may have no owner for a moment: the age of the figures shows it.
    }
    this.#timer = setTimeout(() => this.#ask(), this.period);
  }
}
