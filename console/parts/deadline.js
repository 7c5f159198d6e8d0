// How long what waits goes on waiting.
import { html } from "../lib/html.js";
import { useStore } from "../lib/store.js";
import { millis, now } from "../lib/words.js";

/** Seconds before a deadline from which on it is pressing. */
const PRESSING = 60;

export function Deadline({ at }) {
  const seconds = Math.max(0, Math.round((millis(at) - useStore(now)) / 1000));
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  const left = hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
  return html`<span class=${seconds < PRESSING ? "deadline high" : "deadline"}>
    ${seconds ? `Rejected in ${left}` : "Expired"}</span>`;
}
