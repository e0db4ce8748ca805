// The history of one queue, connection or cluster. Pure.

export const KEPT_MS = 15 * 60_000;
export const MAX_POINTS = 1000;

/** Points in time, limited in number and age. */
export class Trail {
  #before = null;

  constructor() {
    this.points = [];
  }

  /** Add figures. Those of the same moment are merged into one point. */
  note(at, figures) {
    const last = this.points.at(-1);
    if (last?.at === at) Object.assign(last, figures);
    else if (!(at < last?.at)) this.points.push({ at, ...figures });
    while (this.points.length > MAX_POINTS || this.points[0]?.at < at - KEPT_MS) this.points.shift();
  }

  /** Add a queue's record, with rates since the previous one. */
  addQueue(queue) {
    this.note(Date.parse(queue.ts), {
      ...depthsOf(queue),
      ...this.#rates(queue, { in: "enqueued_total", out: "acked_total" }),
    });
  }

  /** Add a connection's record, with rates since the previous one. */
  addConnection(connection) {
    this.note(
      Date.parse(connection.ts),
      this.#rates(connection, {
        in: "frames_in_total",
        out: "frames_out_total",
        bytesIn: "bytes_in_total",
        bytesOut: "bytes_out_total",
      }),
    );
  }

  /** Add the figures of a cluster, with rates since the previous ones. */
  addCluster(cluster) {
    this.note(Date.parse(cluster.ts), {
      behind: Math.max(0, ...cluster.nodes.map(({ behind }) => behind)),
      ...this.#rates(cluster, { appends: "appends", records: "records", busy: "append_s" }),
    });
  }

  #rates(record, fields) {
    const before = this.#before;
    this.#before = record;
    const seconds = before === null ? 0 : (Date.parse(record.ts) - Date.parse(before.ts)) / 1000;
    if (!(seconds > 0) || record.boot !== before.boot) return {};
    return Object.fromEntries(
      Object.entries(fields).map(([name, field]) => {
        return [name, Math.max(0, record[field] - before[field]) / seconds];
      }),
    );
  }
}

/** The waiting and unacknowledged messages of a queue, and the age of the oldest. */
export function depthsOf({ input_depth: waiting, ack_depth: unacked, oldest_input_age_s: age }) {
  return { waiting, unacked, age: waiting > 0 ? (age ?? undefined) : 0 };
}
