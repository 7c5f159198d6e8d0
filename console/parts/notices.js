// What the page tells the person: what was done, what failed, and what to do then.
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { Store, useStore } from "../lib/store.js";

/**
 * Most notices at once; milliseconds for which one stays that tells no failure; pixels beside a press, and of its
 * width.
 */
const MOST = 4,
  SHOWN = 6_000,
  GAP = 8,
  WIDTH = 320;

const notices = new Store([]);
let numbers = 0;

/**
 * Tell something. kind: "done"; "failed", which stays until it is closed; or "refused", of a press that did nothing.
 * beside: the element that was pressed, for a refusal: it stands there in the place of an earlier one.
 */
export function tell(text, kind = "done", beside = /** @type {Element | null} */ (null)) {
  const notice = { number: numbers++, text, kind, style: beside ? placeAt(beside) : {} };
  const others = notices.get().filter((other) => !beside || other.kind !== kind);
  notices.set([...others, notice].slice(-MOST));
  if (kind !== "failed") setTimeout(() => drop(notice), SHOWN);
}

/** The place above an element, or below one at the top of the window. */
function placeAt(element) {
  const { left, top, bottom } = element.getBoundingClientRect();
  const x = `${Math.max(GAP, Math.min(left, innerWidth - WIDTH - GAP))}px`;
  return top > 8 * GAP ? { left: x, bottom: `${innerHeight - top + GAP}px` } : { left: x, top: `${bottom + GAP}px` };
}

/** Do something that may fail; tells the failure. Returns what it returns, or undefined after a failure. */
export async function attempt(doing, done) {
  try {
    const result = await doing();
    if (done) tell(done);
    return result ?? null;
  } catch (fault) {
    tell(fault.message, "failed");
    return undefined;
  }
}

function drop(notice) {
  notices.set(notices.get().filter((other) => other !== notice));
}

export function Notices() {
  const shown = useStore(notices),
    layer = useRef(null);
  // Over the page and over dialogs: what is shown last is on top.
  useLayoutEffect(() => {
    if (layer.current.matches(":popover-open")) layer.current.hidePopover();
    if (shown.length) layer.current.showPopover();
  }, [shown]);
  return html`<div role="status" aria-live="polite">
    <div class="notices" popover="manual" ref=${layer}>
      ${shown.map(
        (notice) => html`<p key=${notice.number} class=${`notice ${notice.kind}`} style=${notice.style}>
        <span>${notice.text}</span>
        <button type="button" class="quiet" aria-label="Close" onClick=${() => drop(notice)}>×</button>
      </p>`,
      )}
    </div>
  </div>`;
}

/** What stands in the place of what is read. */
export function Loading({ words = "Loading" }) {
  return html`<p aria-busy="true">${words}</p>`;
}

/**
 * What was read, as `children(value)` shows it; before that "Loading", and why it failed. of: {value, error, again}.
 */
export function Loaded({ of: { value, error, again }, children }) {
  return html`${error && html`<${Failure} error=${error} again=${again} />`}
    ${value === undefined ? !error && html`<${Loading} />` : children(value)}`;
}

/** A failure in the place of what it prevented, with a way on. */
export function Failure({ error, again }) {
  return html`<div class="failure" role="alert">
    <p>${error.message}</p>
    ${again && html`<button type="button" onClick=${again}>Try again</button>`}
  </div>`;
}

/** Nothing to show, and what to do next. isPage: nothing else is on the page. */
export function Empty({ title, isPage = false, children }) {
  return html`<div class="empty"><${isPage ? "h1" : "h2"}>${title}<//><p>${children}</p></div>`;
}
