// Clients of stompjs over WebSocket that do what they are told.
//
//   node drive.mjs
//
// Each line of standard input is an order in JSON: {client, do, …}. Each line of standard output
// is what a client heard: {client, event, headers, body}. Ends when its standard input does.

import { createInterface } from "node:readline";
import { Client, Versions } from "@stomp/stompjs";
import WebSocket from "ws";

const clients = new Map();
const messages = [];

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function connect({ client: number, port, version, headers }) {
  const client = new Client({
    webSocketFactory: () =>
      new WebSocket(`ws://127.0.0.1:${port}/ws`, client.stompVersions.protocolVersions()),
    stompVersions: new Versions([version]),
    connectHeaders: headers,
    reconnectDelay: 0,
  });
  const tell = (event, frame) =>
    say({ client: number, event, headers: frame?.headers, body: frame?.body });
  const hear = (message) => {
    messages.push(message);
    const key = messages.length - 1;
    say({ client: number, event: "message", headers: message.headers, body: message.body, key });
  };
  client.onConnect = (frame) => tell("connected", frame);
  client.onUnhandledReceipt = (frame) => tell("receipt", frame);
  // Replies that come to a temporary queue of RabbitMQ's belong to no SUBSCRIBE of the client's.
  client.onUnhandledMessage = hear;
  client.onStompError = (frame) => tell("error", frame);
  client.onWebSocketClose = () => tell("ended");
  client.hear = hear;
  clients.set(number, client);
  client.activate();
}

const deeds = {
  connect,
  subscribe: ({ client, destination, headers }) =>
    client.subscribe(destination, client.hear, headers),
  unsubscribe: ({ client, id, headers }) => client.unsubscribe(id, headers),
  publish: ({ client, destination, body, headers }) =>
    client.publish({ destination, body, headers }),
  ack: ({ key, headers }) => messages[key].ack(headers),
  nack: ({ key, headers }) => messages[key].nack(headers),
  transact: ({ client, command, name, headers }) => transact(client, command, name, headers),
  vanish: ({ client }) => {
    client.forceDisconnect();
  },
  leave: ({ client }) => client.deactivate(),
};

// Its begin, commit and abort take no receipt: a SEND behind them on the same connection does,
// and frames of one connection are handled in order.
function transact(client, command, name, headers) {
  const run = { BEGIN: "begin", COMMIT: "commit", ABORT: "abort" }[command];
  client[run](name);
  if (headers.receipt) {
    client.publish({ destination: "/topic/settle", body: "", headers });
  }
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const order = JSON.parse(line);
    const known = order.do === "connect" ? order.client : clients.get(order.client);
    deeds[order.do]({ ...order, client: known });
  })
  .on("close", () => process.exit(0));
