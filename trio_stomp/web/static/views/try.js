// A separate client to try STOMP with: subscribe, send, and see the frames.

import { Ended, brokerUrl, connect } from "../lib/connection.js";
import { Outcome } from "../lib/dialogs.js";
import { byId, el, say } from "../lib/dom.js";
import { explained } from "./explain.js";
import * as format from "../lib/format.js";
import { block } from "../lib/parts.js";

const MAX_RECEIVED = 100;
const MAX_FRAMES = 60;
const MAX_FRAME_SHOWN = 2000;
const MAX_BODY_SHOWN = 4000;
const SECRETS = /^(passcode|authorization):.*$/gim;

export class Try {
  #connection = null;
  #subscriptions = new Map();
  #frames = [];
  #received = 0;

  constructor({ credentials }) {
    this.credentials = credentials;
    this.status = byId("try-status");
    this.list = byId("received");
    this.template = byId("received-template");
    this.sending = new Outcome(byId("send-result"));
    byId("subscribe-form").addEventListener("submit", (event) => this.#subscribe(event));
    byId("send-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.sending.of("Send", (options) => this.#send(event.target.elements, options));
    });
    say(byId("snippet-python"), pythonSnippet(location));
    say(byId("snippet-javascript"), javascriptSnippet(brokerUrl()));
  }

  /** Connect at the first use, and return the connection. */
  async #open() {
    if (this.#connection === null || this.#connection.isOver) {
      const connection = connect({
        credentials: this.credentials(),
        onEnd: (ended) => this.#ended(connection, ended),
        onFrame: (text) => this.#see(text),
      });
      this.#connection = connection;
      say(this.status, "connecting");
    }
    const connection = this.#connection;
    const welcome = await connection.opened;
    say(this.status, `Connected, STOMP ${welcome.version}, session ${welcome.session ?? "–"}.`);
    return connection;
  }

  #ended(connection, { code, message }) {
    if (connection !== this.#connection) return;
    this.#subscriptions.clear();
    this.#drawSubscriptions();
    say(this.status, `Ended: ${message}${code ? ` (${code})` : ""}`);
  }

  /** Disconnect, as the user changes. */
  forget() {
    this.#connection?.close();
    this.#connection = null;
    this.#subscriptions.clear();
    this.#drawSubscriptions();
    say(this.status, "A separate client, over WebSocket.");
  }

  async #subscribe(event) {
    event.preventDefault();
    const { destination, headers } = event.target.elements;
    const name = destination.value;
    if (this.#subscriptions.has(name)) return;
    this.#subscriptions.set(name, null);
    try {
      const given = parseHeaders(headers.value);
      const connection = await this.#open();
      await connection.confirmed((receiptHeader) => {
        const headers = { ...given, ...receiptHeader };
        const subscription = connection.subscribe(name, headers, (each) => this.#receive(each));
        this.#subscriptions.set(name, subscription);
      });
    } catch (error) {
      this.#subscriptions.delete(name);
      // If the connection has ended, the status shows why.
      if (!(error instanceof Ended)) say(this.status, error.message);
    }
    this.#drawSubscriptions();
  }

  #unsubscribe(name) {
    this.#subscriptions.get(name)?.unsubscribe();
    this.#subscriptions.delete(name);
    this.#drawSubscriptions();
  }

  #drawSubscriptions() {
    byId("subscriptions").replaceChildren(
      ...[...this.#subscriptions.keys()].map((name) =>
        el(
          "li",
          {},
          name,
          el(
            "button",
            { type: "button", "aria-label": `Unsubscribe ${name}`, onclick: () => this.#unsubscribe(name) },
            "×",
          ),
        ),
      ),
    );
  }

  #receive(message) {
    this.#received += 1;
    say(byId("received-count"), format.count(this.#received));
    const template = this.template.value;
    const text = template ? filled(template, message, this.#received, Date.now()) : message.body;
    const item = el("li", {}, block(format.cut(text, MAX_BODY_SHOWN)));
    if (!template) item.prepend(receivedHead(message.headers));
    this.list.prepend(item);
    while (this.list.childElementCount > MAX_RECEIVED) this.list.lastChild.remove();
  }

  /** Send as often as the form says, each after the RECEIPT of the one before. */
  async #send({ destination, headers, body, times, pause }, { onProgress, signal }) {
    const given = parseHeaders(headers.value);
    const total = times.valueAsNumber;
    const connection = await this.#open();
    let receipt;
    for (let sent = 0; sent < total; sent += 1) {
      if (sent > 0) {
        onProgress({ seen: sent, total });
        await elapsed(1000 * pause.valueAsNumber, signal);
      }
      receipt = await connection.confirmed((receiptHeader) =>
        connection.send(destination.value, { ...given, ...receiptHeader }, { body: body.value }),
      );
    }
    return total === 1 ? outcome(receipt) : `${format.count(total)} messages sent. The last: ${outcome(receipt)}`;
  }

  #see(text) {
    // Leave out heart-beats, which are only line ends.
    if (!/^(>>>|<<<) [A-Z]/.test(text) || /^(>>>|<<<) P[IO]NG/.test(text)) return;
    const masked = text.replace(SECRETS, "$1:•••").replaceAll("\0", "^@");
    const shown = format.cut(masked.trimEnd(), MAX_FRAME_SHOWN);
    this.#frames.unshift(shown);
    if (this.#frames.length > MAX_FRAMES) this.#frames.pop();
    say(byId("wire"), this.#frames.join("\n\n"));
  }
}

/** The line above the body of a received message. */
function receivedHead({ "message-id": id = "", destination = "" }) {
  return el(
    "p",
    { class: "head" },
    el("time", {}, format.clock(Date.now())),
    el("span", {}, destination),
    el("span", {}, explained(id, { "message-id": id })),
  );
}

/** Wait for `ms` milliseconds. Rejects at once when `signal` stops it. */
function elapsed(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new Error("stopped"));
    });
  });
}

/** Fill a template, as `trio-stomp subscribe --format` does. Other words in braces stay. */
export function filled(template, { headers, body }, n, at) {
  const values = {
    n,
    body,
    time: format.clock(at),
    destination: headers.destination ?? "",
    headers: Object.entries(headers).map((each) => each.join(":")).join(" "),
  };
  return template.replace(/\{\{|\}\}|\{(?:header:([^{}]+)|(\w+))\}/g, (found, header, name) => {
    if (header !== undefined) return Object.hasOwn(headers, header) ? headers[header] : "";
    if (name !== undefined) return Object.hasOwn(values, name) ? String(values[name]) : found;
    return found[0];
  });
}

/** Parse lines `name:value` into headers. Throws an Error with a text for people. */
export function parseHeaders(text) {
  const headers = {};
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`A header is name:value, not ${line.trim()}.`);
    headers[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return headers;
}

/** The outcome of a SEND, from its RECEIPT. */
export function outcome({ matched, stored, duplicate, "x-stream-offset": offset }) {
  if (duplicate === "true") return "A duplicate: accepted before.";
  const facts = [];
  if (matched !== undefined) {
    facts.push(matched === "0" ? "no subscribers" : `subscribers: ${matched}`);
  }
  if (stored !== undefined) facts.push(`it waits, stored in ${stored}`);
  if (offset !== undefined) facts.push(`offset ${offset}`);
  return `The broker has accepted it${facts.length ? `; ${facts.join("; ")}` : ""}.`;
}

/** A Python client to paste, with the address of this page. */
export function pythonSnippet({ hostname, port, protocol }) {
  const host = JSON.stringify(hostname.replace(/^\[|\]$/g, ""));
  const number = port || (protocol === "https:" ? "443" : "80");
  return `import stomp

class Print(stomp.ConnectionListener):
    def on_message(self, frame):
        print(frame.body)

broker = stomp.Connection12([(${host}, ${number})])
broker.set_listener("", Print())
broker.connect(wait=True)
broker.subscribe("/topic/hello", id="1")
broker.send("/topic/hello", "Hello, world")
input("Enter ends this\\n")
broker.disconnect()
`;
}

export function javascriptSnippet(url) {
  return `const client =
  new StompJs.Client({brokerURL: ${JSON.stringify(url)}});

client.onConnect = () => {
  client.subscribe("/topic/hello",
    message => console.log(message.body));
  client.publish(
    {destination: "/topic/hello", body: "Hello, world"});
};
client.activate();
`;
}
