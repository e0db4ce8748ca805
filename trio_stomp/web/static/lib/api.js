// The management interface of the broker, /api/v1, with the login of the page.

/** The broker refused a request, or did not answer. `answer` has what was done before. */
export class Refused extends Error {
  constructor(code, message, answer = {}) {
    super(message);
    Object.assign(this, { code, answer });
  }
}

/** The text of an error, with its code. */
export const problem = ({ message, code }) => `${message}${code ? ` (${code})` : ""}`;

export class Api {
  /** `credentials()`: the login of the page, {login, passcode} or null. */
  constructor(credentials) {
    this.credentials = credentials;
  }

  /**
   * Request figures, and return the answer. Parameters that are undefined or "" are left out.
   *
   * Options: `onProgress(record)` gets figures about the progress; `signal` stops the operation.
   */
  get(verb, parameters = {}, options = {}) {
    return this.#ask("GET", verb, parameters, options);
  }

  /** Request a change, and return the result. Options as for `get`, and the request's `body`. */
  post(verb, parameters = {}, options = {}) {
    return this.#ask("POST", verb, parameters, options);
  }

  async #ask(method, verb, parameters, { body, onProgress, signal }) {
    const headers = { Accept: onProgress ? "application/x-ndjson" : "application/json" };
    const given = this.credentials();
    if (given) headers.Authorization = basic(given);
    let response;
    try {
      response = await fetch(addressOf(verb, parameters), {
        method,
        headers,
        body,
        signal,
        cache: "no-store",
        // Keep the browser from adding its own login, or asking for one.
        credentials: given ? "omit" : "same-origin",
      });
    } catch {
      throw new Refused("", signal?.aborted ? "stopped" : "the broker does not answer");
    }
    const answer = await read(response, onProgress, signal);
    if (response.ok && answer.error === undefined) return answer;
    throw new Refused(answer.code ?? "", answer.error ?? response.statusText, answer);
  }
}

/** The address of a request. A list parameter is repeated for each of its values. */
export function addressOf(verb, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) {
      if (each !== undefined && each !== "") query.append(name, each);
    }
  }
  const text = query.toString();
  return `api/v1/${verb}${text === "" ? "" : `?${text}`}`;
}

function basic({ login = "", passcode = "" }) {
  const bytes = new TextEncoder().encode(`${login}:${passcode}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** Read the answer: an object, or the last of several lines. The others report progress. */
async function read(response, onProgress, signal) {
  let last = {};
  try {
    if (!response.headers.get("content-type")?.includes("ndjson")) return await response.json();
    for await (const line of lines(response.body)) {
      onProgress?.(last);
      last = JSON.parse(line);
    }
    return last;
  } catch {
    const why = signal?.aborted ? "stopped" : "the broker's answer is unreadable, or was cut off";
    return { ...last, error: why };
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const whole = (rest + (value ?? "")).split("\n");
    rest = done ? "" : whole.pop();
    yield* whole.filter((line) => line.trim() !== "");
    if (done) return;
  }
}
