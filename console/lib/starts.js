// The start of a conversation: what was typed, and the start task until the agent is there and has its first message.
import { ApiError, call, newKey } from "./api.js";
import { ours } from "./root.js";
import { Store } from "./store.js";

/** What the browser's session keeps: what was typed, and the start that goes on. */
const DRAFT = ours("agent-server-start"), UNDER_WAY = ours("agent-server-start-under-way");

/** Milliseconds between two polls of a start task; most looks for one whose request is not over yet. */
const POLL = 400, MOST_LOOKS = 150;

export const BLANK = { spec: "", title: "", message: "", policy: "", tags: "" };

/** What was typed. It stays until a conversation has begun with it, also when the page is loaded again. */
export const draft = new Store({ ...BLANK, ...kept(DRAFT) });

draft.subscribe((value) => keep(DRAFT, value));

/**
 * The present start: {asked, task, step, error}, or null. It goes on when the page is loaded again.
 *
 * asked: {body, once, policy, message}. task: null before the server's response. step: "start", "policy" or "message":
 * what is being done, or what failed.
 */
export const start = new Store(kept(UNDER_WAY) && { task: null, error: null, ...kept(UNDER_WAY) });

start.subscribe((value) => {
  const isOver = !value || value.task?.status === "ERROR" || (value.error && !value.task);
  keep(UNDER_WAY, isOver ? null : { asked: value.asked, step: value.step });
});

function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    value ? sessionStorage.setItem(name, JSON.stringify(value)) : sessionStorage.removeItem(name);
  } catch {
    // too long for the browser's storage: the page has it, as long as it stays open
  }
}

/** A new id; `crypto.randomUUID` is missing where the page came without TLS. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const content = (message) => [{ type: "text", text: message }];

/** The tags of "team=core, issue=12", by name; undefined: none. What is wrong with one, the server says. */
function tagsOf(text) {
  const pairs = text.split(",").map((one) => one.trim()).filter(Boolean).map((one) => one.split(/=(.*)/s, 2).map((part) => part.trim()));
  return pairs.length ? Object.fromEntries(pairs.map(([name, value = ""]) => [name, value])) : undefined;
}

/** Start a conversation with what was typed. Resolves to its id, or to null after a failure, which `start` tells. */
export async function begin(signal) {
  const { spec, title, message, policy, tags } = draft.get();
  const body = { conversation_id: newId(), sandbox_spec_id: spec || undefined, title: title.trim() || undefined, tags: tagsOf(tags) };
  if (message.trim() && !policy) body.initial_message = { content: content(message) };
  start.set({ asked: { body, once: newKey(), policy, message }, task: null, step: "start", error: null });
  return finish(signal);
}

/** The start task of a request, which is sent again where its response got lost, and has one effect. */
async function created({ body, once }, signal) {
  for (let looks = 0; ; looks++) {
    try {
      return await call("POST /api/v1/app-conversations", { body, once });
    } catch (error) {
      const found = await known(body.conversation_id);
      if (found) return found;
      const isUnderWay = error.status === 409 && looks < MOST_LOOKS; // this page sent it before it was loaded again
      if (!isUnderWay) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (signal.aborted) throw signal.reason;
  }
}

/** The start task of a conversation, or undefined. */
async function known(id) {
  const query = { conversation_id__eq: id, limit: 1 };
  const { items } = await call("GET /api/v1/app-conversations/start-tasks/search", { query }).catch(() => ({ items: [] }));
  return items[0];
}

/** Go on with a start: wait for the agent, then do what comes after. Resolves as `begin` does. */
export async function finish(signal) {
  const present = start.get();
  try {
    if (!present.task) start.set({ ...present, task: await created(present.asked, signal), error: null });
    const task = await watched(start.get().task, signal);
    if (task.status !== "READY") return null;
    await afterwards(present.asked, task, present.step);
    start.set(null);
    draft.set({ ...BLANK, spec: draft.get().spec, policy: draft.get().policy });
    return task.app_conversation_id ?? task.request.conversation_id;
  } catch (error) {
    if (!signal.aborted) start.set({ ...start.get(), error });
    return null;
  }
}

/** End the present start, whose follower then sees its end. Throws ApiError; 409: it has just become READY. */
export async function end() {
  const path = { start_task_id: start.get().task.id };
  await call("DELETE /api/v1/app-conversations/start-tasks/{start_task_id}", { path });
}

/** The policy before the message: no action of the agent may come before the policy that the person chose. */
async function afterwards({ message, policy, once }, task, step) {
  const path = { conversation_id: task.app_conversation_id };
  if (!policy) return;
  if (step !== "message") {
    start.set({ ...start.get(), task, step: "policy", error: null });
    const chosen = policy === "ConfirmRisky" ? { kind: policy, threshold: "MEDIUM", confirm_unknown: true } : { kind: policy };
    await call("POST /api/conversations/{conversation_id}/confirmation_policy", { path, body: { policy: chosen } });
  }
  if (!message.trim()) return;
  start.set({ ...start.get(), task, step: "message", error: null });
  const body = { content: content(message) };
  await call("POST /api/v1/app-conversations/{conversation_id}/send-message", { path, body, once: `${once}-message` });
}

async function watched(first, signal) {
  let task = first;
  while (task.status !== "READY" && task.status !== "ERROR") {
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (signal.aborted) throw signal.reason;
    let found;
    try {
      [found] = await call("GET /api/v1/app-conversations/start-tasks", { query: { ids: task.id }, signal });
    } catch (error) {
      if (error.status !== 0 && error.status < 500) throw error;
      continue; // the server is away for a moment: the start goes on without this page
    }
    if (!found) throw new ApiError(404, "The server has forgotten this start. Its conversation may be in the list of conversations.");
    task = found;
    start.set({ ...start.get(), task });
  }
  return task;
}
