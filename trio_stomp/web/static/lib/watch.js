// Follows the stream of all DIAG topics: some history, then new records, across reconnections.
// Without the stream, lists are incomplete for a minute, as topics report only changes.

import { connect } from "./connection.js";

const STREAM = "/stream/DIAG";
const EVENTS = "DIAG/event/";
/** Topics to read without the stream. `DIAG*` would include messages sent by clients. */
const TOPICS = [
  "session",
  "stale",
  "process",
  "connections",
  "destinations",
  "queues",
  "latency",
  "event/*",
];
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;
/** Seconds of history to request; the next shorter span if there is too much to read. */
export const SPANS_S = [900, 70, 0];
const MAX_HISTORY_BYTES = 8 * 1024 * 1024;

const LOGIN_CODES = new Set([
  "authentication-required",
  "authentication-failed",
  "credentials-expired",
  "bad-credentials",
  "not-authorized",
]);

const NO_STREAM_CODES = new Set(["unknown-stream", "not-authorized"]);

/** The delay in ms before the next attempt. A random `chance` in 0…1 spreads many pages. */
export function backOff(attempt, chance) {
  const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
  return Math.round(longest * (0.5 + chance / 2));
}

/**
 * Reports its state to `onState`: connecting; reading (history, or waiting for the first record);
 * live; waiting to reconnect (`until`, `message`); login (`code`, `message`).
 */
export class Watch {
  #connection = null;
  #attempt = 0;
  #timer = 0;
  #lastRead = null;
  #hasStream = true;
  #partitions = 1;
  #welcome = {};

  /** `onShortened` is called when the history is too long, and begins again later in time. */
  constructor({ onRecord, onState, onShortened = () => {}, now = () => Date.now(), chance = Math.random }) {
    Object.assign(this, { onRecord, onState, onShortened, now, chance });
    this.credentials = null;
    this.state = { name: "connecting" };
  }

  /** The headers of CONNECTED. */
  get welcome() {
    return this.#welcome;
  }

  get hasHistory() {
    return this.#hasStream;
  }

  /** Connect with credentials; null = anonymously. */
  logIn(credentials) {
    this.credentials = credentials;
    this.#attempt = 0;
    this.#hasStream = true;
    this.start();
  }

  /** Disconnect, and ask for a login. */
  ask() {
    clearTimeout(this.#timer);
    this.#connection?.close();
    this.#connection = null;
    this.#setState({ name: "login", code: "", message: "Log in as another user." });
  }

  /** Get the new events of the other partitions of a cluster, too: `/stream/DIAG` is of the first. */
  followOthers(partitions) {
    if (this.state.name !== "live" || !this.#hasStream) return;
    for (; this.#partitions < partitions; this.#partitions += 1) {
      const headers = { "x-stream-offset": "next", "x-partition": `${this.#partitions}` };
      this.#connection.subscribe(STREAM, headers, (message) => {
        const { destination } = message.headers;
        const record = read(message);
        if (destination?.startsWith(EVENTS) && typeof record?.ts === "string") this.onRecord(destination, record);
      });
    }
  }

  start() {
    this.#partitions = 1;
    clearTimeout(this.#timer);
    this.#connection?.close();
    this.#setState({ name: "connecting" });
    const connection = connect({
      credentials: this.credentials,
      onEnd: (ended) => this.#ended(ended),
    });
    this.#connection = connection;
    connection.opened.then(
      (welcome) => {
        if (connection !== this.#connection) return;
        this.#welcome = welcome;
        if (this.#hasStream) this.#readStream(connection);
        else this.#readTopics(connection);
      },
      () => {},
    );
  }

  /** Reconnect now instead of waiting. */
  hurry() {
    if (this.state.name === "waiting") this.start();
  }

  #setState(state) {
    this.state = state;
    this.onState(state);
  }

  #ended(ended) {
    if (this.#hasStream && NO_STREAM_CODES.has(ended.code)) {
      // There is no stream, or this user may read only the topics.
      this.#hasStream = false;
      this.start();
      return;
    }
    if (LOGIN_CODES.has(ended.code)) {
      this.#setState({ name: "login", code: ended.code, message: ended.message });
      return;
    }
    const wait = Math.max(ended.retryAfterMs, backOff(this.#attempt, this.chance()));
    this.#attempt += 1;
    this.#timer = setTimeout(() => this.start(), wait);
    this.#setState({ name: "waiting", until: this.now() + wait, message: ended.message });
  }

  #readTopics(connection) {
    for (const name of TOPICS) {
      connection.subscribe(`DIAG/${name}`, {}, (message) => this.#take(message));
    }
    this.#live();
  }

  /** Find the end of the stream, then continue after the last record read, or with some history. */
  #readStream(connection) {
    const head = connection.subscribe(STREAM, { "x-stream-offset": "last" }, (message) => {
      head.unsubscribe();
      const newest = read(message);
      this.#follow(connection, newest, 0);
    });
    // A broker that has just started may have no records yet.
    this.#setState({ name: "reading" });
  }

  #follow(connection, newest, shortening) {
    const { headers, isHistory } = this.#start(newest, shortening);
    let bytes = 0;
    let hasCaughtUp = !isHistory;
    if (hasCaughtUp) this.#live();
    const reading = connection.subscribe(STREAM, headers, (message) => {
      if (!hasCaughtUp) {
        bytes += message.binaryBody.length;
        if (bytes > MAX_HISTORY_BYTES && shortening < SPANS_S.length - 1) {
          reading.unsubscribe();
          this.#lastRead = null;
          this.onShortened();
          this.#follow(connection, newest, shortening + 1);
          return;
        }
      }
      this.#take(message);
      if (!hasCaughtUp && this.#lastRead.offset >= newest.offset) {
        hasCaughtUp = true;
        this.#live();
      }
    });
  }

  #start(newest, shortening) {
    const last = this.#lastRead;
    const knows = last !== null && last.epoch === newest.epoch;
    const missed = knows ? Date.parse(newest.ts) - last.at : Infinity;
    if (knows && missed < SPANS_S[0] * 1000) {
      const isHistory = last.offset < newest.offset;
      return { headers: { "x-stream-offset": `offset=${last.offset + 1}` }, isHistory };
    }
    const span = SPANS_S[shortening];
    if (span === 0) return { headers: { "x-stream-offset": "next" }, isHistory: false };
    const since = Math.floor(Date.parse(newest.ts) / 1000) - span;
    return { headers: { "x-stream-offset": `timestamp=${since}` }, isHistory: true };
  }

  #live() {
    this.#attempt = 0;
    this.#setState({ name: "live" });
  }

  #take(message) {
    const { destination } = message.headers;
    const record = read(message);
    if (!destination?.startsWith("DIAG/") || typeof record?.ts !== "string") return;
    this.#lastRead = { epoch: record.epoch, offset: record.offset, at: Date.parse(record.ts) };
    this.onRecord(destination, record, message.binaryBody.length);
  }
}

/** Parse the record of a message; null if it is invalid. An exception would stop the client. */
function read(message) {
  try {
    return JSON.parse(message.body);
  } catch {
    return null;
  }
}
