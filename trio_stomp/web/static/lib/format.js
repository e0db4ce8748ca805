// Formats figures for people. Pure functions.

const DASH = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A number in full: 12,345. */
export const count = (value) => (isNumber(value) ? whole.format(value) : DASH);

/** A number of things: 1 WebSocket, 2 WebSockets. */
export const some = (value, thing) => `${count(value)} ${thing}${value === 1 ? "" : "s"}`;

/** A number in a narrow form: 12.3K. */
export function brief(value) {
  if (!isNumber(value)) return DASH;
  return Math.abs(value) < 10_000 ? whole.format(value) : short.format(value);
}

/** A rate per second, with a decimal if it is small. */
export function rate(value) {
  if (!isNumber(value)) return DASH;
  if (value !== 0 && value < 0.05) return "<0.1";
  if (value < 100) return tenth.format(value);
  return brief(value);
}

/** Bytes with a binary unit. */
export function bytes(value) {
  if (!isNumber(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 100 && unit > 0 ? tenth.format(value) : whole.format(value)} ${units[unit]}`;
}

/** Milliseconds as a time with a suitable unit. */
export function millis(value) {
  if (!isNumber(value)) return DASH;
  if (value >= 1000) return duration(value / 1000);
  if (value >= 10) return `${whole.format(value)} ms`;
  return `${new Intl.NumberFormat("en", { maximumSignificantDigits: 2 }).format(value)} ms`;
}

/** Seconds in the two largest units. */
export function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds < 10) return `${tenth.format(seconds)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Seconds in one unit, for an axis: 40 s, 3.3 min. */
export function age(seconds) {
  if (!isNumber(seconds)) return DASH;
  const units = [[86_400, "d"], [3600, "h"], [60, "min"]];
  const [length, unit] = units.find(([each]) => seconds >= each) ?? [1, "s"];
  return `${tenth.format(seconds / length)} ${unit}`;
}

/** The local time of day of a moment in milliseconds since 1970. */
export function clock(ms) {
  if (!isNumber(ms)) return DASH;
  const time = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** A moment to the millisecond, with its day if that is not the day of `now`. */
export function moment(ms, now) {
  if (!isNumber(ms)) return DASH;
  const time = new Date(ms);
  const exact = `${clock(ms)}.${String(time.getMilliseconds()).padStart(3, "0")}`;
  if (time.toDateString() === new Date(now).toDateString()) return exact;
  return `${time.toLocaleDateString("en", { day: "numeric", month: "short" })} ${exact}`;
}

/** The first `length` characters, with an ellipsis if there are more. */
export function cut(text, length) {
  return text.length <= length ? text : `${text.slice(0, length)}…`;
}
