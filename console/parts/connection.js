// Whether what the page shows is live.
import { html } from "../lib/html.js";
import { connection } from "../lib/live.js";
import { useStore } from "../lib/store.js";

const WORDS = {
  live: "Live",
  lost: "Not live: the server or its store does not respond. The page goes on by itself.",
  offline: "No network. The page goes on when it is back.",
};

export function Connection() {
  const state = useStore(connection);
  return html`<p class=${`connection ${state}`} data-testid="connection" data-state=${state} title=${WORDS[state]} role="status">
    <span class="dot" aria-hidden="true"></span><span>${WORDS[state]}</span>
  </p>`;
}
