// Times in words, and one clock that all components share.
import { Store } from "./store.js";

/** The present time in milliseconds, each second while the page is visible. */
export const now = new Store(Date.now());
setInterval(() => document.hidden || now.set(Date.now()), 1000);
addEventListener("visibilitychange", () => document.hidden || now.set(Date.now()));

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
/** @type {Intl.DateTimeFormatOptions} */
const DAY = { day: "numeric", month: "short", year: "numeric" };
const full = new Intl.DateTimeFormat("en-GB", {
  ...DAY,
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const ofDay = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const days = new Intl.DateTimeFormat("en-GB", { ...DAY, month: "long", weekday: "long" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });

/** Milliseconds of a time of the wire, which is UTC where it names no zone. */
export function millis(time) {
  return Date.parse(/(?:Z|[+-]\d\d:?\d\d)$/.test(time) ? time : `${time}Z`);
}

/** Of a time to come, the share of it by which a rounded number may be wrong: beyond, a smaller unit says it. */
const ROUNDED = 0.15;

/** A time against the present one: "now", "3 min. ago", "in 2 hr.", "in 90 min.". */
export function ago(time, at = Date.now()) {
  const seconds = (millis(time) - at) / 1000;
  for (const [unit, length] of UNITS) {
    if (-seconds >= length) return relative.format(Math.trunc(seconds / length), unit);
    const number = Math.round(seconds / length);
    if (number >= 1 && Math.abs(number * length - seconds) <= ROUNDED * seconds) return relative.format(number, unit);
  }
  return Math.abs(seconds) < 5 ? "now" : relative.format(Math.trunc(seconds), "second");
}

/** How long ago a time was, for a narrow column: "now", "12 s", "3 min", "5 h", "2 d". */
export function age(time, at = Date.now()) {
  const seconds = Math.max(0, Math.trunc((at - millis(time)) / 1000));
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.trunc(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.trunc(seconds / 3_600)} h` : `${Math.trunc(seconds / 86_400)} d`;
}

/** The exact time, in the person's zone, which it names. */
export function exact(time) {
  return full.format(millis(time));
}

/** The time of a day, in the person's zone: "12:41:48". */
export function clock(time) {
  return Number.isNaN(millis(time)) ? "" : ofDay.format(millis(time));
}

/** The day of a time, in the person's zone: "Friday 20 November 2026". */
export function day(time) {
  return Number.isNaN(millis(time)) ? "" : days.format(millis(time));
}

/** A time that something took, in words: "0.4 s", "12 s", "4 min 10 s", "2 h 5 min". */
export function took(milliseconds) {
  const tenths = Math.max(0, Math.round(milliseconds / 100));
  if (tenths < 100) return `${(tenths / 10).toFixed(tenths % 10 ? 1 : 0)} s`;
  const seconds = Math.round(tenths / 10),
    minutes = Math.floor(seconds / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60).toLocaleString("en")} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

/** A number of things in words: "1 message", "20 or more messages", "2 sandboxes". hasMore: more than were counted. */
export function counted(number, name, hasMore = false) {
  const plural = name.endsWith("x") ? `${name}es` : `${name}s`;
  return `${number.toLocaleString("en")}${hasMore ? " or more" : ""} ${number === 1 && !hasMore ? name : plural}`;
}

/** Dollars in words: "$1.25", "$0.0042". */
export const dollars = (number) => `$${number.toFixed(number < 1 ? 4 : 2)}`;

/** A number of bytes in words: "1.5 MiB". */
export function bytes(number) {
  if (number == null) return "–";
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, number)) / 10));
  const value = number / 1024 ** power;
  return `${value.toFixed(power && value < 10 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** A time of the wire as the browser's field for times has it, in the person's zone: "" for none. */
export function fieldOf(time) {
  if (!time || Number.isNaN(millis(time))) return "";
  const at = new Date(millis(time));
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** A time of the wire, from what the browser's field for times has: "" for none. */
export function timeOf(field) {
  return field ? new Date(field).toISOString() : "";
}
