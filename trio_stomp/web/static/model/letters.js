// Dead letters and their original destinations. Pure functions.

const DEAD = "/queue/DLQ.";
const STOMPSERVER_DEAD = "/queue/deadletter";

/** Return whether the name of a queue is that of a dead-letter queue. */
export function isGrave(name) {
  return name.startsWith(DEAD) || name === STOMPSERVER_DEAD;
}

/** The original destination, by the name of a dead-letter queue, or "" if it does not tell. */
export function origin(grave) {
  const name = grave.startsWith(DEAD) ? grave.slice(DEAD.length) : "";
  if (name === "") return "";
  return name.startsWith("topic/") ? `/${name}` : `/queue/${name}`;
}

/** Return whether a message is a dead letter. */
export const isDead = ({ headers }) => "x-death-reason" in headers;

/** Group messages by original destination ("" = unknown), the largest group first. */
export function targets(messages) {
  const found = new Map();
  for (const message of messages) {
    const name = message.headers["original-destination"] ?? "";
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(message);
  }
  return [...found].sort((one, other) => other[1].length - one[1].length);
}

/** Return whether the destination keeps messages without subscribers. */
export function waitsThere(name) {
  // A comma may make it a composite, with parts that are not queues.
  return name.startsWith("/queue/") && name !== "/queue/monitor" && !name.includes(",");
}
