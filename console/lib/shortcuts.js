// Shortcuts of the keyboard. A view says which it knows; `?` lists them, and the palette offers them. In a text field a
// key is a letter, and Escape leaves it. A key of a composition is the input method's: it chooses, ends or drops what
// is being composed, and nothing of the page hears of it.
import { useLayoutEffect, useRef } from "preact/hooks";
import { Store } from "./store.js";

/** What the present views know, the latest view last: {keys: {name: {label, run}}, group}. */
const layers = new Set();

/** What is over the page: "" for nothing, "shortcuts" for the list of them, "palette" for the search of everything. */
export const opened = new Store("");

/** The keys of a sequence that was begun, such as "g"; "" for none. */
export const begun = new Store("");

/** Milliseconds in which a sequence goes on. What comes later is a key of its own. */
const MOST_PAUSE = 3_000;

/** What every shortcut does now: {name: {label, run, group}}. */
export function shortcuts() {
  const all = {};
  for (const {
    current: { keys, group },
  } of layers) {
    for (const [name, key] of Object.entries(keys || {})) {
      delete all[name]; // the latest view says where it stands, too
      all[name] = { ...key, group };
    }
  }
  return all;
}

/**
 * Know shortcuts while a component is there, from the moment when it is: what is seen can be pressed. group: in the
 * list of them. keys: {name: {label, run(event)}}. A name is a key, such as "a"; two keys one after the other, such as
 * "g i"; or the name of an action without a key, which begins with ":". Without `run` the element that has the focus
 * hears of the key, and the list has it.
 */
export function useShortcuts(keys, group = "This view") {
  const layer = useRef({ keys, group });
  layer.current = { keys, group };
  useLayoutEffect(() => {
    layers.add(layer);
    return () => layers.delete(layer);
  }, []);
}

/** Whether a name of a shortcut is of keys. */
export const hasKeys = (name) => !name.startsWith(":");

/** What keys that were typed are: "found", "begun" where more keys make a name of them, or "". */
export function matchOf(names, typed) {
  if (names.includes(typed)) return "found";
  return names.some((name) => hasKeys(name) && name.startsWith(`${typed} `)) ? "begun" : "";
}

function isTyping(target) {
  return target.closest?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

/** Whether a key is an input method's. Some browsers end the composition first, and say of its last key 229 alone. */
const isComposed = (event) => event.isComposing || event.keyCode === 229;

// Before every other listener of the page. The terminal's library has a way of its own with such keys.
addEventListener(
  "keydown",
  (event) => {
    if (isComposed(event) && !(/** @type {Element} */ (event.target).closest?.(".xterm")))
      event.stopImmediatePropagation();
  },
  true,
);

let pause = 0;

/** Note the keys of a sequence, for as long as it may go on. */
function begin(keys) {
  clearTimeout(pause);
  begun.set(keys);
  if (keys) pause = setTimeout(() => begun.set(""), MOST_PAUSE);
}

/** Whether an event asks for the palette: not in a terminal, whose shell knows Ctrl+K. */
const isOfPalette = (event) =>
  (event.ctrlKey || event.metaKey) &&
  !event.altKey &&
  !event.shiftKey &&
  event.key.toLowerCase() === "k" &&
  !event.target.closest?.(".xterm");

addEventListener("keydown", (event) => {
  const target = /** @type {HTMLInputElement} */ (event.target);
  if (isComposed(event) || event.defaultPrevented) return;
  if (isOfPalette(event)) {
    event.preventDefault();
    if (opened.get() === "palette") opened.set("");
    else if (!document.querySelector("dialog[open]")) opened.set("palette");
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Shift") return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(target)) {
    const isCleared = target.type === "search" && target.value !== ""; // the browser's own use of Escape
    if (event.key === "Escape" && !isCleared) target.blur();
    return;
  }
  const known = shortcuts(),
    typed = begun.get() ? `${begun.get()} ${event.key}` : event.key;
  const match = matchOf(Object.keys(known), typed),
    wasBegun = begun.get() !== "";
  begin(match === "begun" ? typed : "");
  const run = match === "found" && known[typed].run;
  if (run || match === "begun" || wasBegun) event.preventDefault();
  if (run) run(event);
});
