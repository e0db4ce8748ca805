// Exchange messages with another client through the broker, with stompjs over WebSocket.
//
//   node exchange.mjs stompjs stomp.py --port 61613
//
// The other client is scripts/examples/exchange.py, which says what happens.

import { parseArgs } from "node:util";
import { Client, Versions } from "@stomp/stompjs";
import WebSocket from "ws";

const TOPIC = "/topic/exchange/";
const STATISTICS = "DIAG/session";
const HELLO = "hello";
const SHOWN = ["clients", "websockets", "stomp_connected", "subscriptions"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    port: { type: "string", default: "61613" },
    count: { type: "string", default: "10000" },
    seconds: { type: "string", default: "60" },
    version: { type: "string", default: "1.2" },
  },
});
const [name, peer] = positionals;
const count = Number(values.count);

let received = 0;
let greeted = false;
let heardAll = false; // the broker has said that it has the last message
let statistics = null;

function fail(error) {
  console.error(`exchange: ${error}`);
  process.exit(1);
}

const patience = setTimeout(
  () => fail(`not done within ${values.seconds} s; ${received} messages so far`),
  Number(values.seconds) * 1000,
);

const client = new Client({
  brokerURL: `ws://127.0.0.1:${values.port}/ws`,
  // A browser has its own WebSocket, and leaves this line out.
  webSocketFactory: () => new WebSocket(client.brokerURL, client.stompVersions.protocolVersions()),
  stompVersions: new Versions([values.version]),
  reconnectDelay: 0,
});

client.onConnect = () => {
  client.watchForReceipt("subscribed", () => {
    console.log(`${name}: subscribed over WebSocket, waiting for ${peer}`);
    client.publish({ destination: TOPIC + peer, body: HELLO });
  });
  client.subscribe(STATISTICS, (message) => {
    if (received === count) statistics = JSON.parse(message.body);
    finish();
  });
  client.subscribe(TOPIC + name, receive, { receipt: "subscribed" });
};

function receive(message) {
  if (message.body === HELLO) {
    greet();
  } else if (message.body === String(received)) {
    received += 1;
    finish();
  } else {
    fail(`message ${received} was due, message ${JSON.stringify(message.body)} came`);
  }
}

function greet() {
  if (greeted) return;
  greeted = true;
  client.publish({ destination: TOPIC + peer, body: HELLO });
  client.watchForReceipt("said-all", () => {
    heardAll = true;
    finish();
  });
  for (let number = 0; number < count; number += 1) {
    const headers = number === count - 1 ? { receipt: "said-all" } : {};
    client.publish({ destination: TOPIC + peer, body: String(number), headers });
  }
}

async function finish() {
  if (received < count || !heardAll || statistics === null || !client.active) return;
  clearTimeout(patience);
  console.log(`${name}: sent ${count}, received ${received} in order`);
  const shown = Object.fromEntries(SHOWN.map((key) => [key, statistics[key]]));
  console.log(`${name}: ${STATISTICS} says`, shown);
  await client.deactivate();
}

client.onStompError = (frame) => fail(frame.headers.message);
client.onWebSocketClose = (event) => {
  if (client.active) fail(`the connection was lost: ${event.code} ${event.reason}`);
};
client.activate();
