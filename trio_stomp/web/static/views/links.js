// Links to the pages of things. Names are set as text only.

import { addressOf, el } from "../lib/dom.js";
import { links } from "../lib/table.js";
import { explained, linkTo } from "./explain.js";

const isQueue = (name) => name.startsWith("/queue/") && !name.includes(",");

/** A link to the page of a queue. */
export const queueLink = (name) => el("a", { href: addressOf("queue", { name }) }, name);

/** A link to the page of a connection. */
export const sessionLink = (session) =>
  session === "" ? "" : el("a", { href: addressOf("connection", { session }) }, session);

/** A link to the page of a queue, or to the explanation of another destination. */
export function placeLink(name, session = "") {
  if (isQueue(name) && session === "") return queueLink(name);
  return explained(name, session ? { destination: name, session } : { destination: name });
}

/** The name of the user of a scheduled message or a last value. */
export const ownerText = ({ user }) => user ?? "unknown";

/** A column of destinations. */
export const placed = (name) =>
  links(
    name,
    (item) => item.destination,
    (item) => placeLink(item.destination, item.session),
  );

/** A column of sessions. */
export const sessions = (name, read, more = {}) =>
  links(name, read, (item) => sessionLink(read(item)), more);

/** A link to the explanation of a destination. */
export const explainLink = (destination) =>
  el("a", { href: linkTo({ destination }) }, "Explain");
