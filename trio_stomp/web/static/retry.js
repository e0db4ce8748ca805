// What dead letters are, and what is sent when one is tried again. Pure functions.

const DEAD = "/queue/DLQ.";
const STOMPSERVER_DEAD = "/queue/deadletter";

/** Headers that are the broker's, or concern this hop alone. */
const HOP = [
  "destination",
  "subscription",
  "message-id",
  "ack",
  "redelivered",
  "delivery-count",
  "content-length",
  "receipt",
  "transaction",
];

/** Conditions of the first sending, which would stop the second. */
const CONDITIONS = [
  // The queue still knows the id: the message would pass for a duplicate, and be lost.
  "x-dedup-id",
  "_AMQ_DUPL_ID",
];
/** It has had its delay; and what else the scheduler is told. */
const SCHEDULER = "amq_schedul";
/** The broker takes them only of the user himself, however they are spelt. */
const SENDER = ["user-id", "jmsxuserid"];

/** What the broker wrote when the message died. */
const DEATH = [
  "original-destination",
  "x-death-reason",
  "x-death-count",
  "x-death-hops",
  "x-first-death-queue",
  "x-first-death-reason",
];

const NOT_RETRIED = new Set([...HOP, ...CONDITIONS, ...DEATH]);

/** Whether a queue holds dead letters, by its name. */
export function isGrave(name) {
  return name.startsWith(DEAD) || name === STOMPSERVER_DEAD;
}

/** The destination whose dead letters a queue holds, by its name; "" = its name does not tell. */
export function origin(grave) {
  const name = grave.startsWith(DEAD) ? grave.slice(DEAD.length) : "";
  if (name === "") return "";
  return name.startsWith("topic/") ? `/${name}` : `/queue/${name}`;
}

/** Where a dead letter came from; "" = it does not say. */
export function targetOf(headers) {
  return headers["original-destination"] ?? "";
}

/** The headers with which a dead letter is sent to where it was sent first. */
export function headersForRetry(headers) {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => isKept(name)));
}

function isKept(name) {
  const folded = name.trim().toLowerCase();
  return !(NOT_RETRIED.has(name) || SENDER.includes(folded) || folded.startsWith(SCHEDULER));
}

/** How many of the messages go to each destination, most first. */
export function targets(messages) {
  const counts = new Map();
  for (const { headers } of messages) {
    const name = targetOf(headers);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1]);
}

/** Whether a message to this destination waits there if nobody listens. */
export function waitsThere(name) {
  // A comma may make it a composite, of which a part is no queue.
  return name.startsWith("/queue/") && name !== "/queue/monitor" && !name.includes(",");
}
