// Decisions of a person: each is bound to what was shown, goes once, and shows its result.
import { call } from "./api.js";
import { outcomes } from "./destinations.js";
import { nameOf } from "./pending.js";
import { Store } from "./store.js";

/** Most decisions that are remembered, and most of one request. */
const MOST = 1_000,
  MOST_OF_ONE = 256;

/**
 * The results of this page's decisions: name of the action → {state, verb, words, at}: sent, taken, lost, or failed.
 */
export const fates = new Store(new Map());

const PROBLEMS = {
  not_pending: "Somebody was faster: it is decided already.",
  expired: "Too late: its time is over, and the server rejects it.",
  changed: "The action is not the one that was shown. Nothing was decided: look at it again.",
  edit_not_understood: "The agent of this conversation does not understand changed arguments.",
  in_terminal: "Its terminal asks now, and only the terminal can answer.",
  own: "You may not approve it: you asked for it, or the conversation is yours.",
  voted: "You have approved it already: others must approve it too.",
  needs_people: "Several people must approve it, each with their own key or name.",
  edit_of_several: "Nobody edits what several people must approve.",
  decided_alike: "The agent takes one decision for all that wait in this conversation.",
  decided_together: "The agent takes one decision for all that wait in this conversation, another too. Look again.",
};

function note(items, fateOf) {
  const all = new Map(fates.get());
  for (const item of items) {
    all.delete(nameOf(item));
    all.set(nameOf(item), { ...fateOf(item), at: Date.now() });
  }
  for (const name of all.keys()) if (all.size > MOST) all.delete(name);
  fates.set(all);
}

/**
 * What became of this page's decision of an item: of `fates`; of a destination or a budget its outcome, in the same
 * form.
 */
export function fateOf(item) {
  if (!item.asked) return fates.get().get(nameOf(item));
  return outcomes.get().get(item.digest)?.fate;
}

/** Whether a decision of an item is on its way or taken. */
export function isGone(item) {
  return ["sent", "taken"].includes(fateOf(item)?.state);
}

/**
 * Decide items of one conversation, all or none. verb: approve, reject or edit. others: reason, arguments, always.
 *
 * Items whose decision is on its way are left out. The result of each is in `fates`. Returns what the server says of
 * rules that were made, or null where nothing was decided.
 */
export async function decide(given, verb, others = {}) {
  const items = given.filter((item) => !isGone(item)).slice(0, MOST_OF_ONE);
  if (!items.length) return null;
  note(items, () => ({ state: "sent", verb, words: "" }));
  const decisionOf = ({ action_id, digest }) => ({ action_id, decision: verb, digest, ...others });
  try {
    const path = { conversation_id: items[0].conversation_id };
    const body = { decisions: items.map(decisionOf) };
    const result = await call("POST /api/v1/conversation/{conversation_id}/pending-actions/decisions", { path, body });
    const waiting = new Map((result.waiting ?? []).map((one) => [one.action_id, one]));
    note(items, ({ action_id }) => counted(verb, waiting.get(action_id)));
    return result.rules;
  } catch (fault) {
    note(items, (item) => fate(item, verb, fault, items.length));
    return null;
  }
}

/**
 * What became of a decision that the server took. held: how many must approve the action, while it waits for others.
 */
function counted(verb, held) {
  if (!held) return { state: "taken", verb, words: "" };
  const { approved_by, needed } = held;
  const who = approved_by.join(", "),
    words = `Your approval counts: ${approved_by.length} of ${needed}, by ${who}. It waits for others.`;
  return { state: "failed", verb, words };
}

/** Decide items of any conversations: those of one go in one request. */
export function decideAll(items, verb, others) {
  const groups = Map.groupBy(items, (item) => item.conversation_id);
  return Promise.all([...groups.values()].map((some) => decide(some, verb, others)));
}

function fate(item, verb, fault, number) {
  const problems = fault.body?.problems ?? [];
  const isOwn = ({ action_id }) => action_id === item.action_id;
  const isOfAll = ({ problem }) => problem.startsWith("decided_");
  const found = problems.find(isOwn) ?? problems.find(isOfAll);
  if (found) {
    const state = found.problem === "not_pending" ? "lost" : "failed";
    return { state, verb, words: PROBLEMS[found.problem] ?? fault.message };
  }
  const isOther = problems.length > 0 && number > 1;
  const words = isOther ? "Another one of those could not be decided, so none was. Press again." : fault.message;
  return { state: "failed", verb, words };
}
