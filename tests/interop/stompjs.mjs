// @stomp/stompjs behind the face of scenario.mjs, in Node and in a browser alike.

import { BEATS_MS, Mailbox, sleep, within } from "./scenario.mjs";

export class Stompjs {
  constructor(library, version, makeSocket, cut) {
    this.name = "stompjs";
    this.version = version;
    this.cut = cut;
    this.messages = new Mailbox();
    this.connected = new Mailbox();
    this.ended = new Mailbox();
    this.subscriptions = new Map();
    this.beats = 0;
    this.receipts = 0;
    this.client = new library.Client({
      webSocketFactory: () => makeSocket(["v12.stomp", "v11.stomp", "v10.stomp"]),
      heartbeatIncoming: BEATS_MS,
      heartbeatOutgoing: BEATS_MS,
      // By default the link is dead after twice the interval.
      heartbeatToleranceMultiplier: 10,
      reconnectDelay: 50,
      onConnect: () => this.connected.put(this.client.connectedVersion),
      onWebSocketClose: () => this.ended.put(null),
      debug: (line) => {
        if (line === "<<< PONG") this.beats += 1;
      },
    });
  }

  connect() {
    this.client.activate();
    return this.connected.get("CONNECTED");
  }

  async idle(ms) {
    const before = this.beats;
    await sleep(ms);
    return this.beats - before;
  }

  subscribe(destination, id, ack) {
    const hear = (message) => {
      this.messages.put({ headers: message.headers, body: message.binaryBody, key: message });
    };
    this.subscriptions.set(id, this.client.subscribe(destination, hear, { id, ack }));
  }

  unsubscribe(id) {
    this.subscriptions.get(id).unsubscribe();
    this.subscriptions.delete(id);
  }

  send(destination, binaryBody, headers) {
    this.client.publish({ destination, binaryBody, headers });
  }

  sendAndWait(destination, binaryBody) {
    this.receipts += 1;
    const receipt = `r${this.receipts}`;
    const came = new Promise((resolve) => this.client.watchForReceipt(receipt, resolve));
    this.client.publish({ destination, binaryBody, headers: { receipt } });
    return within(came, "RECEIPT");
  }

  get() {
    return this.messages.get();
  }

  ack(message) {
    message.key.ack();
  }

  nack(message) {
    message.key.nack();
  }

  begin(name) {
    this.client.begin(name);
  }

  commit(name) {
    this.client.commit(name);
  }

  abort(name) {
    this.client.abort(name);
  }

  async loseAndReturn(destination, id) {
    await this.cut();
    await this.ended.get("the end of the link");
    await this.connected.get("CONNECTED after the cut");
    this.subscribe(destination, id, "auto");
    return "automatic; the program subscribes again";
  }

  leave() {
    return within(this.client.deactivate(), "the end");
  }
}
