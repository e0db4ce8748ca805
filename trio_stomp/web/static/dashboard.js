// The page: selects the view, and shows the age of its figures, the user and the theme.

import { Api } from "./lib/api.js";
import { Palette } from "./lib/charts.js";
import { byId, el, say, show } from "./lib/dom.js";
import * as format from "./lib/format.js";
import { Poll, partitionsOf } from "./lib/poll.js";
import { Watch } from "./lib/watch.js";
import { Model } from "./model/model.js";
import { Cluster } from "./views/cluster.js";
import { Connections } from "./views/connections.js";
import { Destinations } from "./views/destinations.js";
import { Durables } from "./views/durables.js";
import { Events } from "./views/events.js";
import { Explain } from "./views/explain.js";
import { Insight } from "./views/insight.js";
import { LastValues } from "./views/last_values.js";
import { Latency } from "./views/latency.js";
import { Overview } from "./views/overview.js";
import { QueuePage } from "./views/queue.js";
import { Queues } from "./views/queues.js";
import { Schedules } from "./views/schedules.js";
import { SessionPage } from "./views/session.js";
import { Settings } from "./views/settings.js";
import { StreamPage } from "./views/stream.js";
import { Streams } from "./views/streams.js";
import { Subscribers } from "./views/subscriptions.js";
import { Try } from "./views/try.js";

const THEMES = { auto: ["◐", "Auto"], light: ["○", "Light"], dark: ["●", "Dark"] };
const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };
const STALE_INTERVALS = 2.5;
/** Views that need no right to monitor: of what is the user's own, and of topics. */
const OWN = new Set(["try", "durables", "schedules", "last-values", "insight"]);
/** Views of a single thing, with the view that lists such things. */
const PARENTS = { queue: "queues", connection: "connections", stream: "streams" };

const model = new Model();
const palette = new Palette(byId("probe"));
const watch = new Watch({ onRecord: (topic, record) => poll.take(topic, record), onState: showState, onShortened: fill });
const credentials = () => watch.credentials;
const api = new Api(credentials);
const poll = new Poll({ api, onRecord: take });

let heardAt = 0;
let isDrawing = false;
let shown = "overview";

const context = { model, api, palette, redraw, credentials, ownSession: () => watch.welcome.session };
const views = {
  overview: new Overview(context),
  connections: new Connections(context),
  connection: new SessionPage(context),
  destinations: new Destinations(context),
  queues: new Queues(context),
  queue: new QueuePage(context),
  durables: new Durables(context),
  streams: new Streams(context),
  stream: new StreamPage(context),
  schedules: new Schedules(context),
  "last-values": new LastValues(context),
  cluster: new Cluster(context),
  latency: new Latency(context),
  events: new Events(context),
  insight: new Insight(context),
  explain: new Explain({ ...context, subscribers: new Subscribers(context) }),
  settings: new Settings(context),
  try: new Try(context),
};

/** Show samples of the time whose records are too many to read. */
function fill() {
  model.forgetPoints();
  views.overview.fill();
}

function take(topic, record) {
  heardAt = Date.now();
  try {
    model.apply(topic, record);
  } catch (error) {
    // An unexpected record must not stop the others.
    console.error("a record could not be read", topic, error);
  }
  redraw();
}

/** Draw in the next frame, once for all requests until then. */
function redraw() {
  if (isDrawing || document.hidden) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    views[shown].draw?.();
    showFreshness();
  });
}

function showState(state) {
  const needsLogin = state.name === "login";
  if (needsLogin) askForLogin(state);
  const notice = byId("notice");
  const why = state.name === "waiting" ? state.message : "";
  const noHistory = state.name === "live" && !watch.hasHistory;
  say(
    notice,
    why ||
      (noHistory
        ? "The stream of statistics is not available, so there is no history, and destinations are complete only after a minute."
        : ""),
  );
  show(notice, notice.textContent !== "");
  if (state.name === "live") {
    showUser();
    showCluster();
    poll.start();
    partitionsOf(api).then((count) => watch.followOthers(count));
  }
  show(byId("who"), state.name === "live");
  route();
  showFreshness();
}

/** Return whether the view works without the right to monitor. A login comes first, except to try. */
function isOwn() {
  return shown === "try" || (watch.state.code === "not-authorized" && OWN.has(shown));
}

const REASONS = {
  "authentication-required": "This broker requires a login.",
  "credentials-expired": "Your token has expired.",
};

function askForLogin({ code, message }) {
  const user = watch.credentials?.login ?? "";
  const may =
    code === "not-authorized"
      ? `${user || "An anonymous user"} may not monitor this broker (${message}). Log in as a user who may. What is your own is shown without that: Durables, Schedules, Last values, Insight, Try it.`
      : "";
  say(byId("login-why"), REASONS[code] ?? (may || message));
  const { login, passcode } = byId("login-form").elements;
  passcode.value = "";
  if (!isOwn()) (login.value ? passcode : login).focus();
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { login, passcode } = event.target.elements;
  const given = { login: login.value, passcode: passcode.value };
  passcode.value = "";
  for (const view of Object.values(views)) view.forget?.();
  watch.logIn(given);
});

/** Show the user, and the button to log in or out. */
async function showUser() {
  let user = watch.credentials?.login ?? "";
  try {
    ({ user } = await api.get("whoami"));
  } catch {
    // Show the name that was typed: the broker accepted it.
  }
  say(byId("user"), user || "anonymous");
  say(byId("log-out"), watch.credentials === null ? "Log in" : "Log out");
}

/** Show the link to the view of the cluster, if the broker is part of one. */
async function showCluster() {
  let cluster = null;
  try {
    ({ cluster } = await api.get("overview"));
  } catch {
    // A user without the right to read it does not see the link.
  }
  show(document.querySelector('nav a[href="#cluster"]'), cluster !== null);
}

byId("log-out").addEventListener("click", () => {
  if (watch.credentials === null) watch.ask();
  // Forget everything that was shown.
  else location.reload();
});

/** Show at the top whether the figures are live, and their age. */
function showFreshness() {
  const { state } = watch;
  const age = Date.now() - heardAt;
  const limit = STALE_INTERVALS * 1000 * (model.interval || 5);
  let [name, text] = [state.name, state.name];
  if (state.name === "live") {
    [name, text] = age > limit ? ["stale", `${format.duration(Math.floor(age / 1000))} old`] : ["live", "live"];
  } else if (state.name === "reading") {
    text = heardAt ? "reading history" : "waiting for figures";
  } else if (state.name === "waiting") {
    const left = Math.max(0, Math.ceil((state.until - Date.now()) / 1000));
    const old = heardAt ? `, ${format.duration(Math.floor(age / 1000))} old` : "";
    text = `retrying in ${left} s${old}`;
  } else if (state.name === "login") {
    text = "log in";
  }
  const pill = byId("status");
  pill.dataset.state = name;
  say(pill, text);
  const { server } = watch.welcome;
  showBroker(model.identity.broker, server?.replace("trio_stomp/", "") ?? "");
}

function showBroker(name, version) {
  const label = byId("broker");
  if ((!name && !version) || label.textContent === [name, version].filter(Boolean).join(" · ")) return;
  const rest = name && version ? ` · ${version}` : version;
  label.replaceChildren(name, el("span", { class: name ? "word" : null }, rest));
}

function route() {
  const [, wanted, query] = /^#?([^?]*)\??(.*)$/s.exec(location.hash);
  const view = Object.hasOwn(views, wanted) ? wanted : "overview";
  if (view !== shown) views[shown].leave?.();
  shown = view;
  const isClosed = watch.state.name === "login" && !isOwn();
  for (const name of Object.keys(views)) show(byId(name), name === shown && !isClosed);
  show(byId("login"), isClosed);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${PARENTS[shown] ?? shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = titleOf(query);
  // While the page connects, it is not known whether a login is needed.
  if (!isClosed && watch.state.name !== "connecting") views[shown].visit?.(query);
  redraw();
}

/** The title of the page: the thing shown, if it is one, and the view. */
function titleOf(query) {
  const name = shown in PARENTS ? (new URLSearchParams(query).values().next().value ?? "") : "";
  const view = document.querySelector("nav [aria-current]").textContent;
  return [name, view, "trio_stomp"].filter(Boolean).join(" · ");
}

/** Reload the view's data at the interval of the broker's figures. */
function refresh() {
  showFreshness();
  if (document.hidden || watch.state.name !== "live") return;
  views[shown].refresh?.(1000 * Math.min(Math.max(model.interval || 5, 1), 30));
}

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const button = byId("theme");
  const [sign, word] = THEMES[theme];
  button.replaceChildren(`${sign} `, el("span", { class: "word" }, word));
  button.title = `Theme: ${theme === "auto" ? "as the system" : theme}`;
  palette.forget();
  redraw();
}

byId("theme").addEventListener("click", () => {
  const next = NEXT_THEME[document.documentElement.dataset.theme ?? "auto"];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // The theme then lasts until the page is closed.
  }
  showTheme();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
window.addEventListener("hashchange", () => {
  route();
  window.scrollTo(0, 0);
  // The link that was followed may be in the view that is hidden now.
  const { activeElement: focused } = document;
  if (focused === document.body || !focused.checkVisibility()) byId("main").focus();
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
});
window.addEventListener("resize", redraw);
window.addEventListener("online", () => watch.hurry());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  watch.hurry();
  redraw();
});
setInterval(refresh, 1000);

showTheme();
route();
watch.start();
