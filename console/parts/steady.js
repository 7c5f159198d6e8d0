// A press counts only if its button has not moved: a person did not aim at a button that has just come there.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { whyAway } from "./connection.js";
import { tell } from "./notices.js";

/** Minimum time that a button must stand still before a press counts, in milliseconds. */
const MOMENT = 500;

/** Timeout of the second press, in milliseconds. */
const ASKED = 5_000;

/** Places of the watched elements: element → {seen, held, since}. One that is steady bears `data-steady`. */
const places = new Map();

/** Milliseconds between two measurements. A move between them counts from the later one. */
const LOOK = 100;

/** Where an element is: seen, in the window; held, in what scrolls. */
function placeOf(element) {
  const { left, top } = element.getBoundingClientRect();
  const held = [left + scrollX, top + scrollY];
  for (
    let around = element.parentElement;
    around && around !== document.documentElement;
    around = around.parentElement
  ) {
    held[0] += around.scrollLeft;
    held[1] += around.scrollTop;
  }
  return { seen: [left, top], held };
}

const isSame = (one, other) => one.every((value, index) => Math.abs(value - other[index]) < 1);

/**
 * Compare the places with those before: an element that has moved starts over. What the person scrolls keeps its place
 * in what scrolls; what the browser holds still, while something comes above it, keeps its place in the window.
 */
function look() {
  const present = performance.now();
  // All before a change: one layout
  const found = [...places].map(([element, place]) => ({ element, place, ...placeOf(element) }));
  for (const { element, place, seen, held } of found) {
    const isStill = isSame(seen, place.seen) || isSame(held, place.held);
    const since = isStill ? place.since : present;
    places.set(element, { seen, held, since });
    element.toggleAttribute("data-steady", isStill && present - since >= MOMENT);
  }
}

let timer = 0,
  isAsked = false;

function lookSoon() {
  if (isAsked || !places.size) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    look();
  });
}

addEventListener("scroll", lookSoon, { capture: true, passive: true });
addEventListener("resize", lookSoon);
addEventListener("visibilitychange", () => [...places.keys()].forEach(restart));

/** Restart the wait of an element. */
function restart(element) {
  places.set(element, { seen: [NaN, NaN], held: [NaN, NaN], since: 0 });
  look();
}

function watch(element) {
  timer ||= setInterval(look, LOOK);
  restart(element);
  return () => {
    places.delete(element);
    if (places.size) return;
    clearInterval(timer);
    timer = 0;
  };
}

/** Whether any of it is in the window, and in what scrolls around it. */
function isInSight(element) {
  const { top, bottom } = element.getBoundingClientRect();
  let upper = 0,
    lower = innerHeight;
  // A dialog is over the page: what scrolls around its place in the document does not cut it.
  for (let around = element.parentElement; around && !around.matches("body, dialog"); around = around.parentElement) {
    if (getComputedStyle(around).overflowY === "visible") continue;
    const edges = around.getBoundingClientRect();
    [upper, lower] = [Math.max(upper, edges.top), Math.min(lower, edges.bottom)];
  }
  return bottom > upper && top < lower;
}

/** Why a press does not count now, in words; "" where it counts. */
function refusal(element) {
  if (!isInSight(element)) {
    element.scrollIntoView({ block: "nearest" });
    restart(element);
    return "Nothing was decided: the action was out of sight. Look at it, then press again.";
  }
  look();
  return element.hasAttribute("data-steady")
    ? ""
    : "Nothing was decided: the buttons had just moved. Look at the action, then press again.";
}

/**
 * Buttons whose presses count only while they were still and in sight. Returns [ref of their element, press].
 *
 * cause: a change of it lets the buttons start over, such as the time when the keyboard chose their prompt.
 * press(event, run): calls run, or tells why the press does not count; a key that is held down does nothing.
 */
export function useSteady(cause = /** @type {any} */ (0)) {
  const element = useRef(null);
  useEffect(() => watch(element.current), []);
  useLayoutEffect(() => {
    if (cause) restart(element.current);
  }, [cause]);
  const press = (event, run) => {
    event.preventDefault();
    if (event.repeat) return;
    const words = whyAway() || refusal(element.current);
    if (words) tell(words, "refused", event.currentTarget === window ? element.current : event.currentTarget);
    else run();
  };
  return /** @type {const} */ ([element, press]);
}

/** Ignore the repeats of a key that is held down on a button. */
export function onceHeld(event) {
  if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
}

/**
 * [whether a first press asks for a second one, confirm(run)]: calls run at once where isNeeded is false, else at the
 * second press.
 */
export function useSecondPress(isNeeded) {
  const [isAsked, ask] = useState(false);
  useEffect(() => {
    const timer = isAsked && setTimeout(() => ask(false), ASKED);
    return () => clearTimeout(timer);
  }, [isAsked]);
  const confirm = (run) => {
    if (isNeeded && !isAsked) return ask(true);
    ask(false);
    run();
  };
  return /** @type {const} */ ([isNeeded && isAsked, confirm]);
}

/**
 * The class of a button that approves: of a high risk it is no blue one, and red where it asks for its second press.
 */
export const lookOf = (isHigh, isAsked) => (isAsked ? "danger" : isHigh ? "grave" : "");
