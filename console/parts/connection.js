// Whether what the page shows is live: a word beside the views, and a strip over the page while it is not.
import { html } from "../lib/html.js";
import { awaySince, connection, tryNow } from "../lib/live.js";
import { useStore } from "../lib/store.js";

const WORDS = { live: "Live", lost: "Not live", offline: "No network" };

/** Reason why nothing can be sent now, for buttons. Empty while the page is live. */
export const whyAway = () =>
  !awaySince.get()
    ? ""
    : connection.get() === "offline"
      ? "Not now: there is no network."
      : "Not now: the server does not respond.";

/** `whyAway()`, in a component. */
export function useAway() {
  useStore(awaySince);
  useStore(connection);
  return whyAway();
}

export function Connection() {
  const state = useStore(connection);
  return html`<p class=${`connection ${state}`} data-testid="connection" data-state=${state}>
    <span class="dot" aria-hidden="true"></span><span>${WORDS[state]}</span>
  </p>`;
}

/** A strip that says since when the page is not live. The page reconnects by itself. */
export function Strip() {
  const since = useStore(awaySince),
    isOffline = useStore(connection) === "offline";
  const words = isOffline ? "No network." : "Reconnecting…";
  return html`<div role="status">
    ${
      since > 0 &&
      html`<p class="strip" data-testid="strip">
      <span><strong>${words}</strong> What you see is
        from ${new Date(since).toLocaleTimeString("en-GB")}.${
          isOffline && html`<span class="where-wide"> The page goes on when the network is back.</span>`
        }</span>
      ${
        !isOffline &&
        html`<button type="button" class="quiet" data-testid="try-now"
        onClick=${tryNow}>Try now</button>`
      }
    </p>`
    }
  </div>`;
}

/** A button that sends a decision. While the page is not live, the button says why it does nothing. */
export function DecisionButton({ title = "", children, ...others }) {
  const why = useAway();
  return html`<button type="button" ...${others} title=${why || title} aria-disabled=${why ? "true" : undefined}>
    ${children}</button>`;
}
