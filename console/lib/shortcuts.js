// Keys of the keyboard. A view says which it knows; `?` lists them. In a text field a key is a letter, and Escape leaves it.
// A key of a composition is the input method's: it chooses, ends or drops what is being composed, and nothing of the page hears of it.
import { useLayoutEffect, useRef } from "preact/hooks";
import { Store } from "./store.js";

/** The keys that the present views know: {key: {label, run}}, the latest view last. */
const layers = new Set();

/** Whether the list of keys is shown. */
export const shown = new Store(false);

/** What every key does now: {key: {label, run}}. */
export function shortcuts() {
  return Object.assign({}, ...[...layers].map((layer) => layer.current));
}

/**
 * Know keys while a component is there, from the moment when it is: what is seen can be pressed. keys: {key: {label,
 * run(event)}}; without `run` the element that has the focus hears of the key, and `?` lists it.
 */
export function useShortcuts(keys) {
  const layer = useRef(keys);
  layer.current = keys;
  useLayoutEffect(() => {
    layers.add(layer);
    return () => layers.delete(layer);
  }, []);
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

addEventListener("keydown", (event) => {
  const target = /** @type {HTMLInputElement} */ (event.target);
  if (isComposed(event)) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape" && shown.get()) return shown.set(false);
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(target)) {
    const isCleared = target.type === "search" && target.value !== ""; // the browser's own use of Escape
    if (event.key === "Escape" && !isCleared) target.blur();
    return;
  }
  const found = shortcuts()[event.key];
  if (!found?.run) return;
  event.preventDefault();
  found.run(event);
});
