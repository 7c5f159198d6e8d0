// Every pending action of every conversation, live: one stream for the whole page.
import { announce } from "./announce.js";
import { asked, DESTINATION_HANDLERS, showDestinations } from "./destinations.js";
import { parseExactly } from "./exact.js";
import { follow } from "./live.js";
import { Store } from "./store.js";

/** The pending actions, oldest first: items as GET /api/v1/pending-actions has them. null before they are known. */
export const pending = new Store(null);

/** How actions ended, the latest last: name → {conversation_id, action_id, decision, actor, reason, time, event}. */
export const ends = new Store(new Map());

/** Most ends that are remembered. */
const MOST_ENDS = 1_000;

/** The name of an action in this page: an action's id is unique in its conversation alone. */
export const nameOf = (item) => `${item.conversation_id} ${item.action_id}`;

/**
 * The actions that are decided as this one is, at once: those of its conversation where its agent takes one decision
 * for all.
 */
export function alikeOf(item) {
  if (!item.decided_together) return [item];
  return (pending.get() ?? [item]).filter((one) => one.conversation_id === item.conversation_id);
}

let known = new Map();
let isReady = false;

/** Milliseconds in which changes that come together are shown together: hundreds may. */
const TOGETHER = 16;

let timer = null;

function show() {
  if (timer !== null) return;
  timer = setTimeout(() => {
    timer = null;
    if (isReady) pending.set([...known.values()].sort(byAge));
  }, TOGETHER);
}

/** Compares the times when two items began to wait. 0: they came together, and stay in the order of the agent's log. */
export function byAge(a, b) {
  return a.since < b.since ? -1 : a.since > b.since ? 1 : 0;
}

const HANDLERS = {
  reset() {
    known = new Map();
    isReady = false;
  },
  snapshot({ items }) {
    for (const item of items) known.set(nameOf(item), item);
  },
  ready() {
    isReady = true;
  },
  opened(item) {
    if (!item.tool_name) return;
    known.set(nameOf(item), item);
    announce(item);
  },
  changed(item) {
    if (item.tool_name) known.set(nameOf(item), item);
  },
  decided: (end) => close(end, "decided"),
  expired: (end) => close(end, "expired"),
  closed: (end) => close(end, "closed"),
};

function close(end, event) {
  known.delete(nameOf(end));
  const kept = [...ends.get()].slice(1 - MOST_ENDS);
  ends.set(new Map([...kept, [nameOf(end), { ...end, event }]]));
}

/** Follow until the returned function is called: what waits for whose key it is now. */
export function followPending() {
  HANDLERS.reset();
  DESTINATION_HANDLERS.reset();
  pending.set(null);
  asked.set(null);
  return follow("GET /api/v1/pending-actions/stream", {
    cursor: { name: "last_event_id", value: null },
    inBackground: "one",
    query: { destinations: true },
    names: [...new Set([...Object.keys(HANDLERS), ...Object.keys(DESTINATION_HANDLERS)])],
    parse: parseExactly,
    onEvent(name, data) {
      HANDLERS[name]?.(data);
      DESTINATION_HANDLERS[name]?.(data);
      showDestinations();
      show();
    },
  });
}
