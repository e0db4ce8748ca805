// The user of this page, and the settings, policies, users and access rules with their sources.

import { byId, el, facts, matches, say } from "../lib/dom.js";
import { Outcome, ask } from "../lib/dialogs.js";
import { problem } from "../lib/api.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { button, card } from "../lib/parts.js";
import { Rights } from "../lib/rights.js";
import { Table, number, words } from "../lib/table.js";
import { View } from "../lib/view.js";
import { definitionsButtons } from "./definitions.js";

/** The names of the sources of access rules. */
const SOURCES = { none: "none", "built-in": "the built-in ones", own: "those of the broker's file" };
/** Limit of items in a list. */
const LISTED = 1000;

const DEFINITIONS =
  "Created queues, policies and durable subscriptions. An import creates queues, and compares the rest.";

const SETTINGS = {
  label: "Settings",
  key: (item) => item.name,
  empty: "No setting matches.",
  columns: [
    words("Setting", (item) => item.name, { mark: ({ kind }) => (kind === "default" ? "" : "strong"), title: ({ help }) => help }),
    words("Value", (item) => item.value, { title: ({ default: value }) => `default: ${value}` }),
    words("Set by", (item) => item.source, { mark: ({ kind }) => (kind === "default" ? "soft" : "") }),
    words("Reload", ({ live }) => (live ? "at once" : "at the start"), { mark: () => "soft" }),
  ],
};

const POLICIES = {
  label: "Policies",
  key: (item) => item.pattern,
  empty: "No policy is set: the defaults hold for all destinations.",
  columns: [
    words("Destinations", (item) => item.pattern, { mark: () => "strong" }),
    words("Differs from the defaults", (item) => item.difference),
    words("Set by", (item) => item.source, { mark: () => "soft" }),
  ],
};

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
  key: (item) => item.order,
  empty: "There are no access rules.",
  columns: [
    number("Order", (item) => item.order, format.count),
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
    const view = byId("settings");
    const again = button("Read the settings again …", () => this.#reload());
    const { parts, importing } = definitionsButtons({ api, outcome: this.outcome });
    this.rights = new Rights(api);
    this.needs = [
      { button: again, operation: "reload" },
      { button: importing, operation: "definitions" },
    ];
    const note = el("p", { class: "note" }, DEFINITIONS);
    view.append(card("You", [again], this.who), card("Definitions", parts, note));
    const table = (title, options) => {
      const at = el("div", { class: "card flush" });
      const note = el("p", { class: "note" });
      view.append(el("h2", {}, title), at, note);
      return { table: new Table(at, options), note };
    };
    this.policies = table("Policies", POLICIES);
    this.users = table("Users", USERS);
    this.rules = table("Access rules", RULES);
    this.settings = table("Settings", SETTINGS);
    this.loader = new Loader({
      load: () => this.#load(),
      onAnswer: (lists) => {
        this.#lists = lists;
        this.draw();
      },
      outcome: this.outcome,
    });
  }

  visit() {
    super.visit();
    this.rights.apply(this.needs);
  }

  /** Do nothing: settings rarely change. */
  refresh() {}

  clear() {
    this.#lists = null;
    for (const { table } of [this.settings, this.policies, this.users, this.rules]) table.update([]);
    facts(this.who, []);
  }

  /** Load each list, or the reason why it is refused: users and rules require another right. */
  async #load() {
    const part = async (verb, parameters) => {
      try {
        return await this.api.get(verb, parameters);
      } catch (error) {
        return { why: problem(error) };
      }
    };
    const [who, settings, policies, users, rules] = await Promise.all([
      part("whoami"),
      part("settings", { limit: LISTED }),
      part("policies", { limit: LISTED }),
      part("users", { limit: LISTED }),
      part("rules", { limit: LISTED }),
    ]);
    return { who, settings, policies, users, rules };
  }

  draw() {
    if (this.#lists === null) return;
    const { who, settings, policies, users, rules } = this.#lists;
    const { groups = [] } = users.users?.find(({ name }) => name === who.user) ?? {};
    facts(this.who, whoFacts(who, groups));
    const wanted = this.filter.value;
    const fill = ({ table, note }, { why = "" }, items, text = "") => {
      const shown = items.filter((item) => matches(wanted, ...Object.values(item).map(String)));
      table.update(shown);
      say(note, why || text);
    };
    fill(this.settings, settings, settings.settings ?? []);
    fill(this.policies, policies, differences(policies.policies ?? []));
    fill(this.users, users, users.users ?? []);
    fill(this.rules, rules, (rules.rules ?? []).map((rule, index) => ({ ...rule, order: index + 1 })), rulesText(rules));
  }

  async #reload() {
    const answer = await ask({
      title: "Read the settings again?",
      text: "The broker reads its files of settings, users and rules again, as at SIGHUP. If one is wrong, nothing changes.",
      yes: "Read again",
    });
    if (answer === null) return;
    await this.outcome.of("Read again", async () => {
      await this.api.post("reload");
      return "The settings were read again. An event lists the changes.";
    });
    this.loader.now();
  }
}

function whoFacts({ why, user, login, rights, roles, rules }, groups) {
  if (why !== undefined) return [["You", why]];
  return [
    ["User", user || "anonymous"],
    ["Login", login === "none" ? "none needed" : login],
    ["Rights at DIAG", rights.join(", ") || "none"],
    ["Groups", [...new Set([...roles, ...groups])].join(", ") || "none"],
    ["Access rules", SOURCES[rules] ?? rules],
  ];
}

function rulesText({ source, groups = {} }) {
  if (source === undefined) return "";
  const members = Object.entries(groups).map(([name, users]) => `${name}: ${users.join(", ")}`);
  return [source === "none" ? "" : `Rules: ${SOURCES[source] ?? source}.`, ...members].filter(Boolean).join(" ");
}

/** The policies, each with the fields that differ from the last one, the default. */
function differences(policies) {
  const { policy: defaults } = policies.at(-1) ?? {};
  return policies.slice(0, -1).map((each) => {
    const fields = Object.entries(each.policy).filter(([name, value]) => String(value) !== String(defaults[name]));
    return { ...each, difference: fields.map(([name, value]) => `${name} = ${value}`).join(", ") || "nothing" };
  });
}
