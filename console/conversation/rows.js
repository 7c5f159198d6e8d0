// Rows of the timeline: an event, and for an action its result.
import { millis } from "../lib/words.js";
import { usageOf } from "./usage.js";

/** The bare name of an event's kind, which releases qualify. */
export function kindOf(event) {
  return String(event.kind).split(".").at(-1);
}

/** The last event of a row: a fork from the row ends with it, so that no call lacks its result. */
export function lastOf({ event, results }) {
  return results.at(-1) ?? event;
}

/**
 * The rows of events: {event, results}. before: the rows that were shown, of which those that are the same are kept.
 */
export function rowsOf(events, before = []) {
  const rows = [],
    byAction = new Map(),
    byCall = new Map();
  for (const event of events) {
    const action =
      byAction.get(event.action_id) ?? (kindOf(event) === "AgentErrorEvent" ? byCall.get(event.tool_call_id) : null);
    if (action) {
      action.results.push(event);
      continue;
    }
    const row = { event, results: [] };
    rows.push(row);
    if (kindOf(event) !== "ActionEvent") continue;
    byAction.set(event.id, row);
    if (event.tool_call_id) byCall.set(event.tool_call_id, row);
  }
  const known = new Map(before.map((row) => [row.event.id, row]));
  return rows.map((row) => {
    const same = known.get(row.event.id);
    return same && same.event === row.event && same.results.length === row.results.length ? same : row;
  });
}

/** The id of the event to which a return goes; null for another event. */
export function returnOf(event) {
  const isReturn = kindOf(event) === "ConversationStateUpdateEvent" && event.key === "returned_to";
  return isReturn ? String(event.value?.event_id) : null;
}

/**
 * What returns have left behind: by the id of each return that holds, the events before it. One goes to an event of the
 * window, or before it.
 */
export function leftBehind(events) {
  const places = new Map(events.map(({ id }, place) => [id, place])),
    left = new Map();
  for (let place = events.length - 1; place >= 0; ) {
    const to = returnOf(events[place]),
      next = to === null ? place - 1 : Math.min(places.get(to) ?? -1, place - 1);
    if (to !== null) left.set(events[place].id, events.slice(next + 1, place));
    place = next;
  }
  return left;
}

/** Events between the steps of a talk: they change what is known of the conversation, and are told together. */
const BETWEEN = new Set([
  "ConversationStateUpdateEvent",
  "SystemPromptEvent",
  "CondensationRequest",
  "HookExecutionEvent",
]);

/** Whether an event says that somebody changed the approval mode. Who did, only the decision of its id tells. */
export function changesMode(event) {
  return kindOf(event) === "ConversationStateUpdateEvent" && event.key === "approval_mode";
}

/** Whether an event says that the work was pushed. */
const isPush = (event) => kindOf(event) === "ConversationStateUpdateEvent" && event.key === "pushed";

/**
 * A change of the approval mode is a step of its own, a return and a push too, and so is a hook that stopped something,
 * or failed.
 */
function isBetween(event) {
  const kind = kindOf(event);
  return (
    BETWEEN.has(kind) &&
    !changesMode(event) &&
    returnOf(event) === null &&
    !isPush(event) &&
    !(kind === "HookExecutionEvent" && (event.blocked || event.error || event.success === false))
  );
}

/** The last words of the agent, which it says by an action; null for another event. */
export function answerOf({ action }) {
  const kind = action && typeof action === "object" ? String(action.kind) : "";
  const text = kind.endsWith("FinishAction") ? action.message : kind.endsWith("ThinkAction") ? action.thought : null;
  return typeof text === "string" ? text : null;
}

/** A turn: from a message of a person until the next one. known: the tokens before it; null where nobody knows. */
function turn(known) {
  return { rows: [], between: [], actions: 0, milliseconds: 0, since: null, known, tokens: known, hasMessage: false };
}

/** The turn after one, which a message ends at a time: an agent that works then goes on in it. */
function following(one, at) {
  const since = one.since === null ? null : at;
  if (since !== null) {
    one.milliseconds += at - one.since;
    one.since = null;
  }
  return { ...turn(one.tokens), since };
}

/** Counts an event into a turn. */
function count(one, event) {
  const at = millis(event.timestamp),
    usage = event.key === "stats" ? usageOf(event.value) : null;
  if (usage) one.tokens = usage.tokens;
  if (kindOf(event) === "ActionEvent" && answerOf(event) === null) one.actions += 1;
  if (event.key !== "execution_status") return;
  if (event.value === "running") one.since ??= at;
  else if (one.since !== null) {
    one.milliseconds += at - one.since;
    one.since = null;
  }
}

/** The line of a turn: what happened between its steps, and how much it took. before: the lines that were shown. */
function lineOf(one, before) {
  if (!one.between.length) return null;
  const tokens = one.known === null || one.tokens === null ? 0 : one.tokens - one.known;
  const line = {
    id: one.between[0].id,
    events: one.between,
    actions: one.actions,
    milliseconds: one.milliseconds,
    since: one.since,
    tokens,
  };
  const same = before.find(({ id }) => id === line.id);
  const isSame =
    same &&
    ["actions", "milliseconds", "since", "tokens"].every((name) => same[name] === line[name]) &&
    same.events.length === line.events.length;
  return isSame ? same : line;
}

/**
 * The rows of a talk: {row} for each step, {line} for what is between those of a turn. hasOlder: the log has earlier
 * events.
 */
export function talkOf(rows, hasOlder, before = []) {
  const turns = [turn(hasOlder ? null : 0)],
    lines = before.flatMap(({ line }) => line ?? []);
  for (const row of rows) {
    const { event } = row,
      isAsked = kindOf(event) === "MessageEvent" && event.source === "user";
    if (isAsked && turns.at(-1).hasMessage) turns.push(following(turns.at(-1), millis(event.timestamp)));
    const one = turns.at(-1);
    one.hasMessage ||= isAsked;
    count(one, event);
    (isBetween(event) ? one.between : one.rows).push(isBetween(event) ? event : row);
  }
  return turns.flatMap((one) => {
    const line = lineOf(one, lines);
    return [...one.rows.map((row) => ({ row })), ...(line ? [{ line }] : [])];
  });
}
