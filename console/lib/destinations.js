// What sandboxes ask to reach, and budgets that are used up, live, and decisions about them: each is bound to what was
// shown.
import { call } from "./api.js";
import { announce } from "./announce.js";
import { Store, useStore } from "./store.js";

/**
 * What waits, the longest wait first: items as GET /api/v1/destinations has them, by digest. null before they are
 * known.
 */
export const asked = new Store(null);

/** Whether what waits is of a conversation, or of its sandbox where several are in it. of: {id, sandbox_id}. */
export const isOf = (item, of) =>
  item.conversation_id ? item.conversation_id === of.id : item.sandbox_id === of.sandbox_id;

/** Those of them that nobody has decided: one that has ended is still shown for a while. */
export const waitingAsks = new Store([]);

/** How many wait, and how many of those are budgets. */
export const askedNumber = new Store(0),
  budgetNumber = new Store(0);

/** How destinations ended that this page showed: digest → {state, words, isAllowed, fate}: sent, failed or ended. */
export const outcomes = new Store(new Map());

/** Most outcomes that are remembered, and milliseconds for which an ended one is still shown. */
const MOST = 500,
  READ = 20_000;

let known = new Map();
let isReady = false;

function show() {
  const ended = outcomes.get();
  const waiting = isReady ? [...known.values()].filter(({ digest }) => ended.get(digest)?.state !== "ended") : [];
  waitingAsks.set(waiting);
  askedNumber.set(waiting.length);
  budgetNumber.set(waiting.filter(({ budget }) => budget).length);
  if (isReady) asked.set([...known.values()].sort((a, b) => (a.since < b.since ? -1 : a.since > b.since ? 1 : 0)));
}

/** The state of an outcome as the inbox has that of an action's decision. */
const fateOfState = ({ state, isGuess }) => (state === "ended" ? (isGuess ? "lost" : "taken") : state);

function note(digest, outcome) {
  const { words } = outcome,
    fate = { state: fateOfState(outcome), words, at: Date.now() };
  const others = [...outcomes.get()].filter(([name]) => name !== digest).slice(1 - MOST);
  outcomes.set(new Map([...others, [digest, { ...outcome, fate }]]));
}

/** It waits no longer: its card says so for a while, and keeps its place. isGuess: who decided it is not known yet. */
function end(digest, words, isAllowed = false, isGuess = false) {
  const before = outcomes.get().get(digest);
  if (!known.has(digest) || (before?.state === "ended" && !before.isGuess)) return;
  note(digest, {
    state: "ended",
    words: before?.isGuess ? `Somebody was faster. ${words}` : words,
    isAllowed,
    isGuess,
  });
  if (before?.isGuess) return;
  show();
  setTimeout(() => {
    known.delete(digest);
    show();
  }, READ);
}

const DONE = { approve: "Allowed", reject: "Refused" };
/** What waits, in words: a name and a port, or whose budget. */
export const nameOfAsked = ({ name, port, budget }) =>
  budget ? (BUDGETS[budget.setting] ?? budget.setting) : `${name}:${port}`;

const BUDGETS = {
  MODEL_BUDGET_CONVERSATION: "Model budget of a conversation",
  MODEL_BUDGET_KEY: "Model budget of a key, for today",
  MODEL_BUDGET_DAY: "Model budget of all keys, for today",
};

/** The titles of conversations in which something is asked, by id; "" for one without. */
const titles = new Store(new Map());

/** Read the titles that are not known yet. */
function readTitles() {
  const known = titles.get();
  const ids = waitingAsks.get().map(({ conversation_id: id }) => id);
  const fresh = [...new Set(ids)].filter((id) => id && !known.has(id));
  if (!fresh.length) return;
  titles.set(new Map([...[...known].slice(-MOST), ...fresh.map((id) => [id, ""])]));
  call("GET /api/v1/app-conversations", { query: { ids: fresh } }).then(
    (found) =>
      titles.set(
        new Map([...titles.get(), ...found.flatMap((one, place) => (one?.title ? [[fresh[place], one.title]] : []))]),
      ),
    () => {}, // it is called a conversation then
  );
}
waitingAsks.subscribe(readTitles);

const items = new WeakMap();

/** What is asked as an item of the inbox, beside actions; the same object as long as nothing of it changes. */
function itemOf(ask, title) {
  const known = items.get(ask);
  if (known?.conversation_title === title) return known;
  const { conversation_id, sandbox_id, since, expires_at, digest, program, budget } = ask;
  const item = {
    asked: ask,
    conversation_id: conversation_id ?? "",
    conversation_title: title,
    action_id: `asked-${digest}`,
    tool_name: budget ? "budget" : "network",
    arguments: { name: nameOfAsked(ask), program: program ?? "" },
    ...{ sandbox_id, since, expires_at, digest },
  };
  items.set(ask, item);
  return item;
}

/** What waits beside the actions, as items of the inbox. */
export function useAsked() {
  const known = useStore(titles);
  return useStore(waitingAsks).map((ask) => itemOf(ask, known.get(ask.conversation_id) ?? ""));
}

/** The title of the conversation in which something is asked; "" where it is not known. */
export const useTitle = (ask) => useStore(titles).get(ask.conversation_id) ?? "";

const SCOPES = { once: "once", conversation: "for the conversation", always: "always" };

/** How a decision reads: of a budget the scope says nothing more. */
const wordsOf = (subject, decision, scope) =>
  `${DONE[decision] ?? decision}${scope && subject !== "budget" ? ` ${SCOPES[scope] ?? scope}` : ""}`;

function endOf({ subject, decision, scope, actor }) {
  const who = actor.kind === "rule" ? "a rule" : actor.name || "somebody";
  return `${wordsOf(subject, decision, scope)} by ${who}`;
}

/** The events of the stream that are about destinations, beside those of actions. */
export const DESTINATION_HANDLERS = {
  reset() {
    known = new Map();
    isReady = false;
  },
  destinations({ items }) {
    for (const item of items) known.set(item.digest, item);
  },
  ready() {
    isReady = true;
  },
  destination_opened(item) {
    if (!known.has(item.digest)) announce({ conversation_title: "A sandbox", tool_name: nameOfAsked(item) });
    known.set(item.digest, item);
  },
  destination_decided: (data) => end(data.digest, endOf(data), data.decision === "approve"),
  destination_expired: ({ digest }) => end(digest, "Refused: it expired"),
  destination_closed: ({ digest }) => end(digest, "Its sandbox has ended"),
};

/** After events of the stream: what is shown is what is known. */
export { show as showDestinations };

/** Decide what waits, as it was shown. verb: approve or reject. scope: once, conversation or always. */
export async function decideDestination(item, verb, scope) {
  const { subject, sandbox_id, name, port, digest, budget } = item;
  if (["sent", "ended"].includes(outcomes.get().get(digest)?.state)) return;
  note(digest, { state: "sent", words: "" });
  try {
    const of = budget ? { budget: budget.setting } : { name, port };
    await call("POST /api/v1/destinations/decisions", { body: { sandbox_id, ...of, digest, decision: verb, scope } });
    end(digest, `${wordsOf(subject, verb, scope)} by you`, verb === "approve");
  } catch (fault) {
    // who it was, the stream tells a moment later
    if (fault.status === 404 || fault.message.startsWith("This destination was decided"))
      end(digest, "Somebody was faster: it is decided already.", false, true);
    else note(digest, { state: "failed", words: fault.message });
  }
}
