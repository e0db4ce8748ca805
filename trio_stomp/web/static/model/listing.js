// Lists of DIAG that come in parts: what has changed, and at times everything.

/** Beyond so many things the broker tells of them by turns, and no list has everything. */
const MAX_LISTED = 10_000;
/** Of one list; more are not kept. */
const MAX_THINGS = 20_000;

/** A list that comes in parts, what has changed or everything, and the things it tells of. */
export class Listing {
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
export class Thing {
  constructor(item, rates) {
    Object.assign(this, item);
    this.rates = rates;
  }

  /** It was left out of a list of changes: nothing happened. */
  rest() {
    for (const name of Object.keys(this.rates)) this.rates[name] = 0;
  }
}
