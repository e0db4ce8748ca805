// A connection to the broker with stompjs (the global StompJs of a separate script).

/** The end of a connection: an ERROR of the broker, or a lost connection. */
export class Ended extends Error {
  constructor(code, message, retryAfterMs = 0) {
    super(message);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

const MAX_HEARTBEAT_MS = 10_000;

/** The WebSocket URL of the broker that served this page. */
export function brokerUrl() {
  const url = new URL("ws", document.baseURI);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = url.search = "";
  return url.href;
}

/**
 * Open a connection. It does not reconnect.
 *
 * Options: `credentials` ({login, passcode} or null); `onEnd(ended)`, called once, and not after
 * `close`; `onFrame(text)`, called with each frame sent or received.
 */
export function connect({ credentials, onEnd, onFrame }) {
  const headers = { host: location.hostname };
  if (credentials?.login) headers.login = credentials.login;
  if (credentials?.passcode) headers.passcode = credentials.passcode;
  return new Connection(headers, onEnd, onFrame);
}

class Connection {
  #client;
  #receipts = 0;
  #pending = new Map();
  #error = null;
  #isOver = false;

  constructor(connectHeaders, onEnd, onFrame) {
    this.onEnd = onEnd ?? (() => {});
    const { Client, Versions } = window.StompJs;
    this.#client = new Client({
      brokerURL: brokerUrl(),
      connectHeaders,
      stompVersions: new Versions([Versions.V1_2]),
      reconnectDelay: 0,
      connectionTimeout: MAX_HEARTBEAT_MS,
      heartbeatIncoming: MAX_HEARTBEAT_MS,
      // Browsers suspend the timers of hidden pages, so no heart-beat is promised. The broker
      // checks the connection by WebSocket pings.
      heartbeatOutgoing: 0,
      debug: (text) => onFrame?.(text),
      logRawCommunication: onFrame !== undefined,
    });
    this.opened = new Promise((resolve, reject) => {
      this.#client.onConnect = (frame) => resolve(frame.headers);
      this.#pending.set("opened", { resolve, reject });
    });
    this.opened.catch(() => {});
    this.#client.onStompError = (frame) => this.#fail(frame);
    this.#client.onWebSocketClose = (event) => this.#lost(event);
    this.#client.onUnhandledMessage = () => {};
    this.#client.activate();
  }

  #fail(frame) {
    const { code = "", message = "", "retry-after-ms": wait } = frame.headers;
    this.#error = new Ended(code, message, Number(wait) || 0);
    this.#end(this.#error);
  }

  #lost(event) {
    const text = event.reason ? `the connection was closed: ${event.reason}` : "no connection";
    this.#end(this.#error ?? new Ended("", text));
  }

  #end(why) {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const { reject } of this.#pending.values()) reject(why);
    this.#pending.clear();
    this.onEnd(why);
  }

  /** SUBSCRIBE. `onMessage` gets stompjs messages. Returns the subscription. */
  subscribe(destination, headers, onMessage) {
    return this.#client.subscribe(destination, onMessage, headers);
  }

  /** SEND without a receipt. */
  send(destination, headers, content) {
    this.#client.publish({ destination, headers, ...content });
  }

  begin(name) {
    this.#client.begin(name);
  }

  commit(name) {
    this.#client.commit(name);
  }

  /** Call `action` with a receipt header for its frame, and return the headers of the RECEIPT. */
  confirmed(action) {
    this.#receipts += 1;
    const receipt = `r${this.#receipts}`;
    return new Promise((resolve, reject) => {
      this.#pending.set(receipt, { resolve, reject });
      this.#client.watchForReceipt(receipt, (frame) => {
        this.#pending.delete(receipt);
        resolve(frame.headers);
      });
      try {
        action({ receipt });
      } catch {
        // stompjs throws if the connection has been lost.
        this.#pending.delete(receipt);
        reject(this.#error ?? new Ended("", "no connection"));
      }
    });
  }

  get isOver() {
    return this.#isOver;
  }

  /** Disconnect in order, without calling `onEnd`. */
  close() {
    this.#isOver = true;
    for (const { reject } of this.#pending.values()) reject(new Ended("", "left"));
    this.#pending.clear();
    this.#client.deactivate();
  }
}
