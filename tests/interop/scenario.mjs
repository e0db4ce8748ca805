// What every client does, for those written in JavaScript; the same steps as in _scenario.py.
//
// Runs in Node and in a browser, so it imports nothing. A library stands behind this face:
//   {name, version, connect() → version of STOMP, idle(ms) → heart-beats that came,
//    subscribe(destination, id, ack), unsubscribe(id), send(destination, body, headers),
//    sendAndWait(destination, body), get() → {headers, body, key}, ack(message), nack(message),
//    begin(name), commit(name), abort(name), loseAndReturn(destination, id) → who saw to it,
//    leave()}
// Bodies are Uint8Arrays; each of these may be asynchronous.

export const BEATS_MS = 300;
export const PATIENCE_MS = 20_000;
const TOGETHER = 20;
const IDLE_MS = 2000; // the broker of the tests drops who says nothing for 1.3 s

export class NotSupported extends Error {}

const bytes = (text) => new TextEncoder().encode(text);
const text = (body) => new TextDecoder().decode(body);
const NOTHING = bytes("");

function binary() {
  return Uint8Array.from({ length: 1_000_000 }, (_, i) => (i * 7 + Math.floor(i / 256)) % 256);
}

async function sha256(body) {
  const digest = new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", body));
  return Array.from(digest, (each) => each.toString(16).padStart(2, "0")).join("");
}

export function expect(found, wanted) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`${JSON.stringify(found)} came, not ${JSON.stringify(wanted)}`);
  }
}

export function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`never so: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// What came and was not asked for yet, in order.
export class Mailbox {
  #waiting = [];
  #lying = [];

  put(item) {
    const first = this.#waiting.shift();
    if (first) first(item);
    else this.#lying.push(item);
  }

  get(what = "a message") {
    if (this.#lying.length) return Promise.resolve(this.#lying.shift());
    return within(new Promise((resolve) => this.#waiting.push(resolve)), what);
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function steps(client, other, tag) {
  async function take(...bodies) {
    const messages = [];
    for (const wanted of bodies) {
      const message = await client.get();
      expect(text(message.body), wanted);
      messages.push(message);
    }
    return messages;
  }

  async function fill(name, ...bodies) {
    const destination = `/queue/${tag}.${name}`;
    for (const body of bodies) await client.send(destination, bytes(body), {});
    return destination;
  }

  async function topic() {
    const destination = `/topic/${tag}.news`;
    await client.subscribe(destination, "topic", "auto");
    await client.send(destination, bytes("Tee: 5 €"), { colour: "green" });
    const [message] = await take("Tee: 5 €");
    expect(message.headers.colour, "green");
    expect(message.headers.destination, destination);
    await client.unsubscribe("topic");
  }

  async function ack(mode, ...left) {
    const destination = await fill(mode, "a", "b", "c");
    await client.subscribe(destination, `${mode}-1`, mode);
    await client.ack((await take("a", "b", "c"))[1]);
    await client.unsubscribe(`${mode}-1`);
    await client.subscribe(destination, `${mode}-2`, "auto");
    for (const message of await take(...left)) expect(message.headers.redelivered, "true");
    await client.unsubscribe(`${mode}-2`);
  }

  return {
    connect: async () => `STOMP ${await client.connect()}`,
    "heart-beat": async () => {
      const beats = await client.idle(IDLE_MS);
      if (beats < 2) throw new Error(`${beats} heart-beats came in ${IDLE_MS} ms`);
      await topic();
    },
    topic,
    // Frames that come in one segment: they wait, and are sent in one turn.
    together: async () => {
      const bodies = Array.from({ length: TOGETHER }, (_, i) => `m${i}`);
      await client.subscribe(await fill("together", ...bodies), "together", "auto");
      await take(...bodies);
      await client.unsubscribe("together");
    },
    "ack-auto": async () => {
      const destination = await fill("auto", "a", "b");
      await client.subscribe(destination, "auto-1", "auto");
      await take("a", "b");
      await client.unsubscribe("auto-1");
      await fill("auto", "c");
      await client.subscribe(destination, "auto-2", "auto");
      await take("c");
      await client.unsubscribe("auto-2");
    },
    "ack-client": () => ack("client", "c"),
    "ack-client-individual": () => ack("client-individual", "a", "c"),
    nack: async () => {
      await client.subscribe(await fill("nack", "a"), "nack", "client-individual");
      await client.nack((await take("a"))[0]);
      const [again] = await take("a");
      expect(again.headers.redelivered, "true");
      await client.ack(again);
      await client.unsubscribe("nack");
    },
    commit: async () => {
      const destination = `/queue/${tag}.commit`;
      await client.subscribe(destination, "commit", "auto");
      await client.begin("t1");
      await client.send(destination, bytes("second"), { transaction: "t1" });
      await client.send(destination, bytes("first"), {});
      await take("first");
      await client.commit("t1");
      await take("second");
      await client.unsubscribe("commit");
    },
    abort: async () => {
      const destination = `/queue/${tag}.abort`;
      await client.subscribe(destination, "abort", "auto");
      await client.begin("t2");
      await client.send(destination, bytes("never"), { transaction: "t2" });
      await client.abort("t2");
      await client.send(destination, bytes("after"), {});
      await take("after");
      await client.unsubscribe("abort");
    },
    receipt: async () => {
      await client.sendAndWait(`/topic/${tag}.receipt`, NOTHING);
    },
    reply: async () => {
      const server = other();
      const destination = `/queue/${tag}.ask`;
      await server.connect();
      await server.subscribe(destination, "asked", "auto");
      await client.subscribe("/temp-queue/answers", "answers", "auto");
      await client.send(destination, bytes("?"), { "reply-to": "/temp-queue/answers" });
      const asked = await server.get();
      await server.send(asked.headers["reply-to"], bytes("!"), {});
      await take("!");
      await client.unsubscribe("answers");
      await server.leave();
    },
    wildcard: async () => {
      await client.subscribe(`/topic/${tag}.wild.*`, "wild", "auto");
      await client.send(`/topic/${tag}.tame.cat`, bytes("no"), {});
      await client.send(`/topic/${tag}.wild.cat`, bytes("yes"), {});
      const [message] = await take("yes");
      expect(message.headers.destination, `/topic/${tag}.wild.cat`);
      await client.unsubscribe("wild");
    },
    binary: async () => {
      const destination = `/queue/${tag}.binary`;
      const body = binary();
      await client.subscribe(destination, "binary", "auto");
      await client.send(destination, body, { "content-type": "application/octet-stream" });
      const { body: found } = await client.get();
      expect(found.length, body.length);
      const digest = await sha256(found);
      expect(digest, await sha256(body));
      await client.unsubscribe("binary");
      return `SHA-256 ${digest.slice(0, 16)}`;
    },
    reconnect: async () => {
      const destination = `/topic/${tag}.back`;
      const who = await client.loseAndReturn(destination, "back");
      await client.send(destination, bytes("again"), {});
      await take("again");
      return who;
    },
  };
}

// Runs all, or those of `wanted`, with commas between them; the exit code. `other` makes one more
// client; `say` prints a line of JSON.
export async function run(client, other, tag, on, say, wanted = process.env.INTEROP_STEPS) {
  say({ client: client.name, version: client.version, on });
  const deeds = steps(client, other, tag);
  for (const step of wanted ? wanted.split(",") : Object.keys(deeds)) {
    const deed = deeds[step];
    try {
      say({ step, result: "ok", detail: (await deed()) ?? "" });
    } catch (error) {
      if (!(error instanceof NotSupported)) {
        // After a failure nothing is known of the connection: the rest would say nothing.
        say({ step, result: "failed", detail: `${error}` });
        return 1;
      }
      say({ step, result: "not supported by the library", detail: error.message });
    }
  }
  await client.leave();
  return 0;
}
