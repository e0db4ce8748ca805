// What the rules of `trio-stomp spark watch --insight` found: one line for each thing and rule.
// Pure: no page, no connection, no clock. Its size is bounded.

export const MAX_FINDINGS = 200;

export class Findings {
  constructor() {
    this.items = new Map();
    /** The newest minute of any message, in milliseconds since 1970; 0 = none came. */
    this.heardAt = 0;
  }

  /** Take the record of a message, which may be anybody's. */
  take(record) {
    const at = Date.parse(record?.minute);
    if (Number.isNaN(at)) return;
    this.heardAt = Math.max(this.heardAt, at);
    const [rule, destination, text, broker, consumer] = [
      record.rule, record.destination, record.text, record.broker_id, record.subscription,
    ].map((each) => (typeof each === "string" ? each : ""));
    if (rule === "" || text === "") return; // the rates of a minute
    const key = JSON.stringify([broker, rule, destination, consumer]);
    const since = this.items.get(key)?.since ?? at;
    this.items.delete(key); // so that the newest is the last
    this.items.set(key, { key, since, at, rule, destination, text });
    if (this.items.size > MAX_FINDINGS) this.items.delete(this.items.keys().next().value);
  }

  /** All of them, the newest first. */
  list() {
    return [...this.items.values()].reverse();
  }
}
