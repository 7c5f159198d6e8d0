// The state of a conversation and of a sandbox, in words.
import { html } from "../lib/html.js";

/** execution_status of the wire: [words, look]. */
export const CONVERSATION = {
  running: ["Working", "busy"],
  waiting_for_confirmation: ["Waiting for you", "waiting"],
  idle: ["Idle", "calm"],
  paused: ["Paused", "calm"],
  finished: ["Finished", "calm"],
  error: ["Failed", "bad"],
  stuck: ["Stuck", "bad"],
  deleting: ["Deleting", "calm"],
};

/** status of a sandbox: [words, look]. */
export const SANDBOX = {
  STARTING: ["Starting", "busy"],
  RUNNING: ["Running", "good"],
  PAUSED: ["Paused", "calm"],
  ERROR: ["Failed", "bad"],
  MISSING: ["Host unreachable", "bad"],
};

/** Replaces an item that was deleted a moment ago. */
export function Deleted() {
  return html`<span class="state calm"><span class="dot" aria-hidden="true"></span>Deleted</span>`;
}

/** A state. of: CONVERSATION or SANDBOX. number: of what waits, 0 for none. */
export function State({ of, status, number = 0 }) {
  const [words, look] = of[status] ?? [status, "calm"];
  return html`<span class=${`state ${look}`} data-state=${status}><span class="dot" aria-hidden="true"></span>${words}
    ${number ? ` (${number})` : ""}</span>`;
}
