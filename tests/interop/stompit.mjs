// stompit in Node, over TCP and TLS.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { BEATS_MS, Mailbox, run, sleep, within } from "./scenario.mjs";
import { arguments_, cut, packageVersion, say } from "./node.mjs";

const require = createRequire(new URL("../js/package.json", import.meta.url));
const stompit = require("stompit");
const { transport, host, port, caFile, tag } = arguments_;

class Stompit {
  constructor() {
    this.name = "stompit";
    this.version = packageVersion("stompit");
    this.messages = new Mailbox();
    this.subscriptions = new Map();
    this.transactions = new Map();
    this.beats = 0;
    const tls = transport === "tls" ? { ssl: true, ca: readFileSync(caFile) } : {};
    const connectHeaders = { host, "heart-beat": `${BEATS_MS},${BEATS_MS}` };
    const server = { host, port, connectHeaders, ...tls };
    // What reconnects: each connect() goes to the next server that answers.
    this.failover = new stompit.ConnectFailover([server], { maxReconnects: 10 });
  }

  async connect() {
    const connecting = new Promise((resolve, reject) => {
      this.failover.connect((error, client) => (error ? reject(error) : resolve(client)));
    });
    this.client = await within(connecting, "CONNECTED");
    this.lost = new Promise((resolve) => this.client.once("error", resolve));
    this.client.on("error", () => {});
    const input = this.client.getTransportSocket();
    input.on("data", (data) => {
      if (data.length === 1 && data[0] === 10) this.beats += 1;
    });
    return this.client.headers.version;
  }

  async idle(ms) {
    const before = this.beats;
    await sleep(ms);
    return this.beats - before;
  }

  subscribe(destination, id, ack) {
    const hear = (error, message) => {
      if (error) return;
      const parts = [];
      message.on("data", (part) => parts.push(part));
      message.on("end", () => {
        const body = new Uint8Array(Buffer.concat(parts));
        this.messages.put({ headers: message.headers, body, key: message });
      });
    };
    this.subscriptions.set(id, this.client.subscribe({ destination, id, ack }, hear));
  }

  unsubscribe(id) {
    this.subscriptions.get(id).unsubscribe();
    this.subscriptions.delete(id);
  }

  // In frames of their own; it counts no bytes of a body unless told.
  #send(headers, body, options) {
    const { transaction: name, ...rest } = headers;
    const all = { ...rest, "content-length": body.length };
    const sender = this.transactions.get(name) ?? this.client;
    const frame = sender.send(all, options);
    frame.end(Buffer.from(body));
  }

  send(destination, body, headers) {
    this.#send({ destination, ...headers }, body);
  }

  sendAndWait(destination, body) {
    const came = new Promise((resolve) => {
      this.#send({ destination }, body, { onReceipt: resolve });
    });
    return within(came, "RECEIPT");
  }

  get() {
    return this.messages.get();
  }

  ack(message) {
    this.client.ack(message.key);
  }

  nack(message) {
    this.client.nack(message.key);
  }

  begin(name) {
    this.transactions.set(name, this.client.begin(name));
  }

  commit(name) {
    this.transactions.get(name).commit();
    this.transactions.delete(name);
  }

  abort(name) {
    this.transactions.get(name).abort();
    this.transactions.delete(name);
  }

  async loseAndReturn(destination, id) {
    await cut();
    await within(this.lost, "the end of the link");
    await this.connect();
    this.subscribe(destination, id, "auto");
    return "connect() of its ConnectFailover by the program";
  }

  async leave() {
    const left = new Promise((resolve, reject) => {
      this.client.disconnect((error) => (error ? reject(error) : resolve()));
    });
    await within(left, "the end");
  }
}

process.exit(await run(new Stompit(), () => new Stompit(), tag, process.version, say));
