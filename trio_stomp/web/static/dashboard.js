// The page: which view is shown, how fresh its figures are, who is logged in, which theme.

import { Palette } from "./charts.js";
import { byId, el, say, show } from "./dom.js";
import { Explain } from "./explain.js";
import * as format from "./format.js";
import { Left } from "./left.js";
import { Connections, Destinations, Events, Latency } from "./lists.js";
import { Model } from "./model.js";
import { Overview } from "./overview.js";
import { Queues } from "./queues.js";
import { Try } from "./try.js";
import { Watch } from "./watch.js";

const THEMES = { auto: ["◐", "Auto"], light: ["○", "Light"], dark: ["●", "Dark"] };
const NEXT_THEME = { auto: "light", light: "dark", dark: "auto" };
const STALE_INTERVALS = 2.5;

const model = new Model();
const palette = new Palette(byId("probe"));
const watch = new Watch({ onRecord: take, onState: showState });
const credentials = () => watch.credentials;

let heardAt = 0;
let isDrawing = false;
let shown = "overview";

const views = {
  overview: new Overview(model, palette, redraw),
  connections: new Connections(model, () => watch.welcome.session, redraw),
  destinations: new Destinations(model, redraw),
  queues: new Queues(model, credentials, redraw),
  schedules: new Left(credentials),
  latency: new Latency(model, palette, redraw),
  events: new Events(model, redraw),
  explain: new Explain(model, credentials),
  try: new Try(credentials),
};

function take(topic, record) {
  heardAt = Date.now();
  try {
    model.apply(topic, record);
  } catch (error) {
    // One record that is not as expected must not stop the others.
    console.error("a record could not be read", topic, error);
  }
  redraw();
}

/** Draw soon, once for all that asks before. */
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
  show(byId("login"), needsLogin && shown !== "try");
  if (needsLogin) askForLogin(state);
  const notice = byId("notice");
  const why = state.name === "waiting" ? state.message : "";
  const noHistory = state.name === "live" && !watch.hasHistory;
  say(
    notice,
    why ||
      (noHistory
        ? "The stream of statistics is not available, so there is no history, and lists are complete only after a minute."
        : ""),
  );
  show(notice, notice.textContent !== "");
  route();
  showFreshness();
}

const REASONS = {
  "authentication-required": "This broker requires a login.",
  "credentials-expired": "Your token has expired.",
};

function askForLogin({ code, message }) {
  const user = watch.credentials?.login ?? "";
  const may =
    code === "not-authorized"
      ? `${user || "An anonymous user"} may not monitor this broker (${message}). Log in as a user who may; “Try it” works without that.`
      : "";
  say(byId("login-why"), REASONS[code] ?? (may || message));
  const { login, passcode } = byId("login-form").elements;
  passcode.value = "";
  if (shown !== "try") (login.value ? passcode : login).focus();
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { login, passcode } = event.target.elements;
  const given = { login: login.value, passcode: passcode.value };
  passcode.value = "";
  views.try.leave();
  views.explain.leave();
  views.schedules.leave();
  watch.logIn(given);
});

/** Whether what is seen is of now, in the words of the pill at the top. */
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
    text = `again in ${left} s${old}`;
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
  const place = byId("broker");
  if ((!name && !version) || place.textContent === [name, version].filter(Boolean).join(" · ")) return;
  const rest = name && version ? ` · ${version}` : version;
  place.replaceChildren(name, el("span", { class: name ? "word" : null }, rest));
}

function route() {
  const [, wanted, asked] = /^#?([^?]*)\??(.*)$/s.exec(location.hash);
  shown = Object.hasOwn(views, wanted) ? wanted : "overview";
  const isClosed = watch.state.name === "login" && shown !== "try";
  for (const name of Object.keys(views)) show(byId(name), name === shown && !isClosed);
  show(byId("login"), isClosed);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // Who has yet to log in is asked first.
  if (!isClosed && watch.state.name !== "connecting") views[shown].visit?.(asked);
  redraw();
}

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const button = byId("theme");
  const [sign, word] = THEMES[theme];
  button.replaceChildren(`${sign} `, el("span", { class: "word" }, word));
  button.setAttribute("aria-label", `Theme: ${theme === "auto" ? "as the system" : theme}`);
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
    // It holds until the page is closed, then.
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
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
});
window.addEventListener("resize", redraw);
window.addEventListener("online", () => watch.hurry());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  watch.hurry();
  redraw();
});
setInterval(showFreshness, 1000);

showTheme();
route();
watch.start();
