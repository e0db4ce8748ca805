// Lists of DIAG, which arrive in parts and contain changes, or sometimes all items.

/** Limit of items in a list. The broker reports more things in turn, so no list is complete. */
const MAX_LISTED = 10_000;
/** Limit of things to remember. */
const MAX_THINGS = 20_000;

/** The things reported by lists, each the newest record of its key. */
export class Listing {
  constructor(keyOf) {
    this.keyOf = keyOf;
    this.things = new Map();
    this.begin(false);
  }

  /** Forget all things. `isNew`: counters of things that appear from now on began at 0. */
  begin(isNew) {
    this.things.clear();
    this.isComplete = isNew;
    this.at = null;
    this.before = null;
    this.seen = new Set();
    this.parts = 0;
  }

  /** Process a part of a list. `learn(old, item, seconds)` returns the thing to remember. */
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
      // The end of a connection that is not open is not reported, so keep it for one list only.
      if (hasAll || !(thing.state === undefined || thing.state === "open")) this.things.delete(key);
      else thing.rest();
    }
    if (hasAll) this.isComplete = true;
  }

  /** The growth of a counter. It began at 0 if the thing is new and the list was complete. */
  growth(old, item, field) {
    if (old === undefined) return this.isComplete ? item[field] : 0;
    return item[field] >= old[field] ? item[field] - old[field] : item[field];
  }
}

/** An item of a list, with its rates in the last interval. */
export class Thing {
  constructor(item, rates) {
    Object.assign(this, item);
    this.rates = rates;
  }

  /** Reset the rates: a list of changes left it out. */
  rest() {
    for (const name of Object.keys(this.rates)) this.rates[name] = 0;
  }
}
