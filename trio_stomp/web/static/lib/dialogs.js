// Confirmation dialogs, and the line with the outcome of an operation.

import { problem } from "./api.js";
import { announce, bdi, byId, el, parts, say, show } from "./dom.js";
import { count } from "./format.js";

/**
 * Ask the user. Returns null for no, else {chosen, ...values}: the ticked `choices`, and the
 * values of the `fields`.
 *
 * A choice: {value, text, more, isTicked, isOff}; a field: {name, label, value, offers}.
 */
export function ask({ title, text, yes, choices = [], fields = [], isDangerous = false }) {
  const dialog = byId("confirm");
  const form = byId("confirm-form");
  say(byId("confirm-title"), title);
  say(byId("confirm-text"), text);
  const button = byId("confirm-yes");
  say(button, yes);
  button.className = isDangerous ? "danger" : "main";
  const boxes = choices.map(choiceOf);
  const inputs = fields.map(fieldOf);
  byId("confirm-choices").replaceChildren(...[...boxes, ...inputs].map(({ label }) => label));
  return new Promise((resolve) => {
    const end = (answer) => {
      dialog.close();
      resolve(answer);
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      const chosen = boxes.filter(({ input }) => input.checked).map(({ value }) => value);
      const values = inputs.map(({ name, input }) => [name, input.value.trim()]);
      end({ chosen: new Set(chosen), ...Object.fromEntries(values) });
    };
    byId("confirm-no").onclick = () => end(null);
    dialog.oncancel = () => resolve(null);
    // The event comes later than the closing, perhaps when the next question is open.
    dialog.onclose = () => {
      if (!dialog.open) resolve(null);
    };
    dialog.showModal();
    (inputs[0]?.input ?? byId("confirm-no")).focus();
  });
}

function choiceOf({ value, text, more = "", isTicked = false, isOff = false }) {
  const input = el("input", { type: "checkbox", disabled: isOff, checked: isTicked });
  const words = el("span", {}, text);
  if (more) words.append(el("small", {}, more));
  return { value, input, label: el("label", { class: "choice" }, input, words) };
}

function fieldOf({ name, label, value = "", offers = [] }) {
  const list = `offers-${name}`;
  const input = el("input", { name, value, required: true, list, spellcheck: "false", autocomplete: "off" });
  const options = el("datalist", { id: list }, ...offers.map((each) => el("option", { value: each })));
  return { name, input, label: el("label", { class: "field" }, label, input, options) };
}

/** The line of a view with the progress and outcome of an operation, and a button to stop it. */
export class Outcome {
  constructor(line) {
    this.line = line;
    this.text = el("span");
    this.stop = el("button", { type: "button", class: "small" }, "Stop");
    line.classList.add("result");
    line.append(this.text, this.stop);
    this.hide();
  }

  get isHidden() {
    return this.line.hidden;
  }

  hide() {
    show(this.line, false);
  }

  tell(text, { isWrong = false, stop = null } = {}) {
    say(this.text, text);
    this.line.classList.toggle("wrong", isWrong);
    this.stop.onclick = stop;
    show(this.stop, stop !== null);
    show(this.line, text !== "");
    if (stop === null && text !== "") announce(text);
  }

  fail(error, what = "") {
    this.tell([...parts(what), bdi(problem(error))], { isWrong: true });
  }

  /**
   * Run `work({onProgress, signal})` and show its progress, then the text that it returns or its
   * error. Returns whether it succeeded.
   */
  async of(what, work) {
    const ending = new AbortController();
    const stop = () => ending.abort();
    this.tell([...parts(what), " …"], { stop });
    const onProgress = ({ seen, total }) => {
      const figures = `: ${count(seen)} of ${count(total)} …`;
      if (total > 0) this.tell([...parts(what), figures], { stop });
    };
    try {
      this.tell(await work({ onProgress, signal: ending.signal }));
      return true;
    } catch (error) {
      this.fail(error, [...parts(what), ": "]);
      return false;
    }
  }
}
