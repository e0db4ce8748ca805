// Who I am; the settings, policies, users and access rules in force, and where each comes from.

import { byId, el, facts, matches, say } from "../lib/dom.js";
import { Outcome } from "../lib/dialogs.js";
import { problem } from "../lib/api.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { card } from "../lib/parts.js";
import { Table, number, words } from "../lib/table.js";
import { View } from "../lib/view.js";

/** Of one list. */
const LISTED = 1000;

const USERS = {
  label: "Users",
  key: (item) => item.name,
  empty: "The broker knows no users by name.",
  columns: [
    words("User", (item) => item.name),
    words("Groups", ({ groups }) => groups.join(", ")),
    number("Connections", (item) => item.connections, format.count),
  ],
};

const RULES = {
  label: "Access rules",
  key: (item) => item.place,
  empty: "There are no access rules.",
  columns: [
    number("Order", (item) => item.place, format.count),
    words("Effect", ({ allow }) => (allow ? "allow" : "deny"), { mark: ({ allow }) => (allow ? "good" : "wrong") }),
    words("Actions", ({ actions }) => actions.join(", ")),
    words("Destinations", ({ to }) => to.join(", ")),
    words("Users", ({ users }) => users.join(", ")),
    words("Groups", ({ groups }) => groups.join(", ")),
    words("Written at", ({ location }) => location, { mark: () => "soft" }),
  ],
};

export class Settings extends View {
  #lists = null;

  constructor({ api }) {
    super();
    this.api = api;
    this.outcome = new Outcome(byId("settings-result"));
    this.filter = byId("settings-filter");
    this.filter.addEventListener("input", () => this.draw());
    this.who = el("dl", { class: "facts" });
    const place = byId("settings");
    place.append(card("You", [], this.who));
    const table = (title, options) => {
      const at = el("div", { class: "card flush" });
      const note = el("p", { class: "note" });
      place.append(el("h2", {}, title), at, note);
      return { table: new Table(at, options), note };
    };
    this.users = table("Users", USERS);
    this.rules = table("Access rules", RULES);
    this.loader = new Loader({
      load: () => this.#load(),
      onAnswer: (lists) => {
        this.#lists = lists;
        this.draw();
      },
      outcome: this.outcome,
    });
  }

  /** It changes seldom. */
  refresh() {}

  clear() {
    this.#lists = null;
    for (const { table } of [this.users, this.rules]) table.update([]);
    facts(this.who, []);
  }

  /** Each list, or why it is not shown: users and rules take another right than the rest. */
  async #load() {
    const part = async (verb, parameters) => {
      try {
        return await this.api.get(verb, parameters);
      } catch (error) {
        return { why: problem(error) };
      }
    };
    const [who, users, rules] = await Promise.all([
      part("whoami"),
      part("users", { limit: LISTED }),
      part("rules"),
    ]);
    return { who, users, rules };
  }

  draw() {
    if (this.#lists === null) return;
    const { who, users, rules } = this.#lists;
    facts(this.who, whoFacts(who));
    const wanted = this.filter.value;
    const fill = ({ table, note }, { why = "" }, items, told = "") => {
      const shown = items.filter((item) => matches(wanted, ...Object.values(item).map(String)));
      table.update(shown);
      say(note, why || told);
    };
    fill(this.users, users, users.users ?? []);
    fill(this.rules, rules, (rules.rules ?? []).map((rule, place) => ({ ...rule, place: place + 1 })), rulesText(rules));
  }
}

function whoFacts({ why, user, login, rights, roles, rules }) {
  if (why !== undefined) return [["You", why]];
  return [
    ["User", user || "anonymous"],
    ["Login", login === "none" ? "none needed" : login],
    ["Rights at DIAG", rights.join(", ") || "none"],
    ["Groups", roles.join(", ") || "none"],
    ["Access rules", rules],
  ];
}

function rulesText({ source, groups = {} }) {
  if (source === undefined) return "";
  const members = Object.entries(groups).map(([name, users]) => `${name}: ${users.join(", ")}`);
  return [source === "none" ? "" : `Rules: ${source}.`, ...members].filter(Boolean).join(" ");
}
