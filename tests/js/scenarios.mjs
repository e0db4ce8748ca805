// Scenarios of protocol, connections and load in one go, against a running broker.
//
//   node scenarios.mjs PORT [--host 127.0.0.1] [--clients 1000] [--seconds 120]
//
// protocol: what STOMP 1.2 says, step by step, on sockets of TCP and WebSocket.
// connections: so many connect in parallel over TCP, are all CONNECTED, and then all leave.
// load: so many connect with stompjs over WebSocket, subscribe to a topic of their own, send,
// receive and leave. Prints a summary; the exit code is 1 if something failed.

import { connect } from "node:net";
import { parseArgs } from "node:util";
import { Client } from "@stomp/stompjs";
import WebSocket from "ws";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    host: { type: "string", default: "127.0.0.1" },
    clients: { type: "string", default: "1000" },
    seconds: { type: "string", default: "120" },
  },
});
const port = Number(positionals[0]);
const { host } = values;
const clients = Number(values.clients);
const STEP_MS = 20_000;
const CONNECT = "CONNECT\naccept-version:1.2\nhost:localhost\n\n\0";
const END = Symbol("the end of the connection");

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`never so: ${what}`)), STEP_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function expect(found, wanted) {
  if (found !== wanted) throw new Error(`${String(found)} came, not ${String(wanted)}`);
}

// The frames in a text, and what is left of it; all bodies here are texts without NUL.
function framesOf(text) {
  const parts = text.split("\0");
  const rest = parts.pop();
  const frames = parts.map((part) => {
    const [head, ...body] = part.replace(/^[\r\n]+/, "").split("\n\n");
    const [command, ...lines] = head.split("\n");
    const headers = Object.fromEntries(
      lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]),
    );
    return { command, headers, body: body.join("\n\n") };
  });
  return [frames, rest];
}

// A socket that says what it is told to, and has frames come in a queue.
class Raw {
  #came = [];
  #waiting = [];
  #rest = "";

  constructor(write, close) {
    this.write = write;
    this.close = close;
  }

  static open(transport) {
    return within(
      transport === "tcp" ? Raw.#tcp() : Raw.#ws(),
      `a connection over ${transport}`,
    );
  }

  static #tcp() {
    return new Promise((resolve, reject) => {
      const socket = connect(port, host);
      socket.setEncoding("utf8");
      const raw = new Raw((text) => socket.write(text), () => socket.destroy());
      socket.on("connect", () => resolve(raw));
      socket.on("data", (text) => raw.#hear(text));
      socket.on("error", reject);
      socket.on("close", () => raw.#put(END));
    });
  }

  static #ws() {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(`ws://${host}:${port}/ws`, ["v12.stomp"]);
      const raw = new Raw((text) => socket.send(text), () => socket.terminate());
      socket.on("open", () => resolve(raw));
      socket.on("message", (data) => raw.#hear(data.toString()));
      socket.on("error", reject);
      socket.on("close", () => raw.#put(END));
    });
  }

  #hear(text) {
    const [frames, rest] = framesOf(this.#rest + text);
    this.#rest = rest;
    frames.forEach((frame) => this.#put(frame));
  }

  #put(item) {
    const first = this.#waiting.shift();
    if (first) first(item);
    else this.#came.push(item);
  }

  next(what) {
    if (this.#came.length) return this.#came.shift();
    return within(new Promise((resolve) => this.#waiting.push(resolve)), what);
  }

  // The next frame must be this; nothing but this may have come before the end.
  async hears(command, headers = {}) {
    const frame = await this.next(command);
    expect(frame === END ? "the end" : frame.command, command);
    for (const [name, wanted] of Object.entries(headers)) expect(frame.headers[name], wanted);
    return frame;
  }

  async ends() {
    expect(await this.next("the end"), END);
    this.close();
  }
}

async function connected(transport) {
  const raw = await Raw.open(transport);
  raw.write(CONNECT);
  await raw.hears("CONNECTED", { version: "1.2" });
  return raw;
}

async function leave(raw) {
  raw.write("DISCONNECT\nreceipt:77\n\n\0");
  await raw.hears("RECEIPT", { "receipt-id": "77" });
  await raw.ends();
}

function refused(frame) {
  return async (transport, open = connected) => {
    const raw = await open(transport);
    raw.write(frame);
    await raw.hears("ERROR");
    await raw.ends();
  };
}

const protocol = {
  "STOMP and DISCONNECT, with a receipt": async (transport) => {
    const raw = await Raw.open(transport);
    raw.write(CONNECT.replace("CONNECT", "STOMP"));
    await raw.hears("CONNECTED", { version: "1.2" });
    await leave(raw);
  },
  "CONNECT with version 1.1": async (transport) => {
    const raw = await Raw.open(transport);
    raw.write(CONNECT.replace("1.2", "1.0,1.1"));
    await raw.hears("CONNECTED", { version: "1.1" });
    await leave(raw);
  },
  "no common version": async (transport) => {
    const raw = await Raw.open(transport);
    raw.write(CONNECT.replace("1.2", "9.9"));
    await raw.hears("ERROR");
    await raw.ends();
  },
  "CR LF behind the command, LF behind headers": async (transport) => {
    const raw = await Raw.open(transport);
    raw.write(CONNECT.replace("CONNECT\n", "CONNECT\r\n"));
    await raw.hears("CONNECTED");
    await leave(raw);
  },
  "line ends between frames": async (transport) => {
    const raw = await connected(transport);
    raw.write("\n\r\n\n");
    await leave(raw);
  },
  "SUBSCRIBE without destination": refused("SUBSCRIBE\nid:1\nreceipt:9\n\n\0"),
  "SUBSCRIBE without id": refused("SUBSCRIBE\ndestination:/topic/a\nreceipt:9\n\n\0"),
  "UNSUBSCRIBE without id": refused("UNSUBSCRIBE\ndestination:/topic/a\nreceipt:9\n\n\0"),
  "SEND without destination": refused("SEND\nreceipt:9\n\n\0"),
  "an id for two subscriptions": refused(
    "SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/b\n\n\0",
  ),
  "an unknown command": refused("INVALID\n\n\0"),
  "an undefined escape": refused("SEND\ndestination:/topic/a\\t\n\n\0"),
  "SEND before CONNECT": (transport) =>
    refused("SEND\ndestination:/topic/a\n\n\0")(transport, Raw.open),
  "two subscriptions, and the end of one": async (transport) => {
    const raw = await connected(transport);
    for (const [id, name] of [["1", "one"], ["2", "two"]]) {
      raw.write(`SUBSCRIBE\nid:${id}\ndestination:/topic/s.${transport}.${name}\nreceipt:${id}\n\n\0`);
      await raw.hears("RECEIPT", { "receipt-id": id });
    }
    raw.write("UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0");
    await raw.hears("RECEIPT", { "receipt-id": "u" });
    for (const name of ["one", "two"]) {
      raw.write(`SEND\ndestination:/topic/s.${transport}.${name}\ncontent-length:5\n\nhello\0`);
    }
    await raw.hears("MESSAGE", { subscription: "2" });
    await leave(raw);
  },
  "headers and escapes pass": async (transport) => {
    const raw = await connected(transport);
    const destination = `/topic/h.${transport}`;
    raw.write(`SUBSCRIBE\nid:1\ndestination:${destination}\nreceipt:s\n\n\0`);
    await raw.hears("RECEIPT");
    const own = "custom-header:a\\cb\\\\c\ncontent-type:text/plain";
    raw.write(`SEND\ndestination:${destination}\n${own}\ncontent-length:5\n\nhello\0`);
    const wanted = { destination, subscription: "1", "content-type": "text/plain" };
    const message = await raw.hears("MESSAGE", { ...wanted, "content-length": "5" });
    expect(message.headers["custom-header"], "a\\cb\\\\c");
    expect(message.body, "hello");
    await leave(raw);
  },
  "a queue keeps what nobody takes": async (transport) => {
    const raw = await connected(transport);
    raw.write(`SEND\ndestination:/queue/k.${transport}\n\nkept\0`);
    raw.write(`SUBSCRIBE\nid:1\ndestination:/queue/k.${transport}\n\n\0`);
    expect((await raw.hears("MESSAGE")).body, "kept");
    await leave(raw);
  },
};

async function runProtocol() {
  let done = 0;
  let all = 0;
  for (const transport of ["tcp", "ws"]) {
    for (const [name, deed] of Object.entries(protocol)) {
      all += 1;
      try {
        await deed(transport);
        done += 1;
      } catch (error) {
        console.log(`protocol: FAILED over ${transport}: ${name}: ${error.message}`);
      }
    }
  }
  return [done, all];
}

// How many of so many came to an end as they should; the first failure is told.
async function count(name, deeds) {
  const ends = await Promise.allSettled(deeds);
  const failed = ends.filter((each) => each.status === "rejected");
  if (failed.length) console.log(`${name}: FAILED ${failed.length}: ${failed[0].reason.message}`);
  return ends.length - failed.length;
}

async function runConnections() {
  const numbers = Array.from({ length: clients }, (_, i) => i);
  const opened = [];
  const sessions = new Set();
  await count(
    "connections",
    numbers.map(async () => {
      const raw = await Raw.open("tcp");
      raw.write(CONNECT);
      sessions.add((await raw.hears("CONNECTED")).headers.session);
      opened.push(raw);
    }),
  );
  expect(sessions.size, opened.length);
  // All are there at once; now all leave.
  return [await count("connections", opened.map(leave)), clients];
}

function lifeOf(number) {
  return new Promise((resolve, reject) => {
    const body = `message ${number}`;
    const destination = `/topic/load.${number}`;
    let failure = new Error("the connection ended early");
    const client = new Client({
      webSocketFactory: () => new WebSocket(`ws://${host}:${port}/ws`, ["v12.stomp"]),
      reconnectDelay: 0,
      heartbeatIncoming: 0,
      heartbeatOutgoing: 10_000,
      onConnect: () => {
        client.subscribe(destination, (message) => {
          failure = message.body === body ? null : new Error(`${message.body} came`);
          client.deactivate();
        });
        client.publish({ destination, body });
      },
      onStompError: (frame) => {
        failure = new Error(frame.headers.message);
      },
      onWebSocketClose: () => (failure ? reject(failure) : resolve()),
    });
    client.activate();
  });
}

async function runLoad() {
  const lives = Array.from({ length: clients }, (_, i) => within(lifeOf(i), `the life of ${i}`));
  return [await count("load", lives), clients];
}

setTimeout(() => {
  console.log(`FAILED: not done within ${values.seconds} s`);
  process.exit(1);
}, Number(values.seconds) * 1000).unref();

let code = 0;
for (const [name, run] of Object.entries({
  protocol: runProtocol,
  connections: runConnections,
  load: runLoad,
})) {
  const start = performance.now();
  let result;
  try {
    const [done, all] = await run();
    if (done !== all) code = 1;
    result = `${done} of ${all}`;
  } catch (error) {
    code = 1;
    result = `FAILED: ${error.message}`;
  }
  console.log(`${name}: ${result} in ${((performance.now() - start) / 1000).toFixed(1)} s`);
}
process.exit(code);
