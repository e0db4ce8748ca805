// What dead letters are, and where they came from. Pure functions.

const DEAD = "/queue/DLQ.";
const STOMPSERVER_DEAD = "/queue/deadletter";

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

/** Whether a message is a dead letter. */
export const isDead = ({ headers }) => "x-death-reason" in headers;

/** The messages by where they came from, most first; "" = they do not say. */
export function targets(messages) {
  const found = new Map();
  for (const message of messages) {
    const name = message.headers["original-destination"] ?? "";
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(message);
  }
  return [...found].sort((one, other) => other[1].length - one[1].length);
}

/** Whether a message to this destination waits there if nobody listens. */
export function waitsThere(name) {
  // A comma may make it a composite, of which a part is no queue.
  return name.startsWith("/queue/") && name !== "/queue/monitor" && !name.includes(",");
}
