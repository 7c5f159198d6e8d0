// What the page tells the person: what was done, what failed, and what to do then.
import { html } from "../lib/html.js";
import { Store, useStore } from "../lib/store.js";

/** Most notices at once; milliseconds for which one stays that tells no failure. */
const MOST = 4,
  SHOWN = 6_000;

const notices = new Store([]);
let numbers = 0;

/** Tell something. kind: "done" or "failed"; a failure stays until it is closed. */
export function tell(text, kind = "done") {
  const notice = { number: numbers++, text, kind };
  notices.set([...notices.get(), notice].slice(-MOST));
  if (kind === "done") setTimeout(() => drop(notice), SHOWN);
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
  const shown = useStore(notices);
  return html`<div class="notices" role="status" aria-live="polite">
    ${shown.map(
      (notice) => html`<p key=${notice.number} class=${`notice ${notice.kind}`}>
        <span>${notice.text}</span>
        <button type="button" class="quiet" aria-label="Close" onClick=${() => drop(notice)}>×</button>
      </p>`,
    )}
  </div>`;
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
