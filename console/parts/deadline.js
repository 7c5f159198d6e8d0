// How long what waits goes on waiting.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useStore } from "../lib/store.js";
import { millis, now } from "../lib/words.js";

/** Seconds before a deadline from which on it is pressing, and from which on a row says it. */
const PRESSING = 60,
  NEAR = 600;

const secondsTo = (at) => Math.max(0, Math.round((millis(at) - now.get()) / 1000));

/** Whether a deadline is near; a component is drawn again when that changes. */
function useNear(at) {
  const [isNear, set] = useState(false);
  useEffect(() => {
    const look = () => set(Boolean(at) && secondsTo(at) < NEAR);
    look();
    return at ? now.subscribe(look) : undefined;
  }, [at]);
  return isNear;
}

function Left({ at }) {
  useStore(now);
  const seconds = secondsTo(at);
  const words = seconds >= PRESSING ? `${Math.floor(seconds / 60)} min left` : `${seconds} s left`;
  return html`<span class=${seconds < PRESSING ? "high" : "medium"}>${seconds ? words : "Expired"}</span>`;
}

/** What a row says of time: how long is left where the deadline is near, else `children`. */
export function NearDeadline({ at, children }) {
  return useNear(at) ? html`<${Left} at=${at} />` : children;
}

/** "1 h 20 min", "9 min 31 s", "12 s". */
function spanOf(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

/** How long it is until a time. */
export function Until({ at }) {
  useStore(now);
  return spanOf(secondsTo(at));
}

export function Deadline({ at }) {
  useStore(now);
  const seconds = secondsTo(at),
    left = spanOf(seconds);
  return html`<span class=${seconds < PRESSING ? "deadline high" : "deadline"}>
    ${seconds ? `Rejected in ${left}` : "Expired"}</span>`;
}
