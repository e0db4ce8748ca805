// Export and import of definitions: created queues, policies and durable subscriptions.

import { ask } from "../lib/dialogs.js";
import { el } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { button } from "../lib/parts.js";

/** Limit of the length of the names of new queues in a text. */
const MAX_NAMES = 500;
const TYPES = { toml: "application/toml", json: "application/json" };

/**
 * The buttons and the hidden field of the file, `parts`, and the button for an import.
 *
 * `outcome` shows the results.
 */
export function definitionsButtons({ api, outcome }) {
  const file = el("input", { type: "file", accept: ".json,.toml", hidden: true, "aria-label": "File" });
  file.onchange = () => restore(api, outcome, file);
  const importing = button("Import …", () => file.click());
  return { parts: [file, button("Export", () => save(api, outcome)), importing], importing };
}

function save(api, outcome) {
  return outcome.of("Export", async ({ signal }) => {
    const definitions = await api.get("definitions", {}, { signal });
    const content = new Blob([`${JSON.stringify(definitions, null, 1)}\n`], { type: TYPES.json });
    const href = URL.createObjectURL(content);
    el("a", { href, download: "definitions.json" }).click();
    URL.revokeObjectURL(href);
    return `definitions.json: ${format.some(definitions.queues.length, "queue")}, ${format.some(definitions.durables.length, "durable subscription")}.`;
  });
}

/** Show what the file would change, and import it if the user agrees. */
async function restore(api, outcome, file) {
  const [chosen] = file.files;
  if (chosen === undefined) return;
  const body = new Blob([chosen], { type: TYPES[chosen.name.endsWith(".toml") ? "toml" : "json"] });
  file.value = "";
  const send = (dry_run) => api.post("definitions", { dry_run }, { body });
  let found;
  const isRead = await outcome.of("Read", async () => {
    found = await send("1");
    return "";
  });
  if (!isRead) return;
  const answer = await ask({ title: `Import ${chosen.name}?`, text: changes(found, "to create"), yes: "Import" });
  if (answer !== null) await outcome.of("Import", async () => changes(await send(), "created"));
}

function changes({ created, existing, policies, durables }, done) {
  const names = created.length > 0 ? `: ${format.cut(created.join(", "), MAX_NAMES)}` : "";
  const parts = [`${format.some(created.length, "queue")} ${done}${names}`, `${format.count(existing.length)} already there`];
  if (policies.length > 0) parts.push(`policies that differ, left unchanged: ${policies.join(", ")}`);
  if (durables.length > 0) parts.push(`durable subscriptions, to be made by their subscribers: ${durables.join(", ")}`);
  return `${parts.join("; ")}.`;
}
