// The start of a conversation: what was typed, and the start task until the agent is there and has its first message.
import { ApiError, call } from "./api.js";
import { Store } from "./store.js";

const NAME = "agent-server-start";

/** Milliseconds between two polls of a start task. */
const POLL = 400;

export const BLANK = { spec: "", title: "", message: "", policy: "" };

/** What was typed. It stays until a conversation has begun with it, also when the page is loaded again. */
export const draft = new Store({ ...BLANK, ...kept() });

draft.subscribe((value) => {
  try {
    sessionStorage.setItem(NAME, JSON.stringify(value));
  } catch {
    // too long for the browser's storage: the page has it, as long as it stays open
  }
});

/** The present start: {task, step, error}, or null. step: "start", "policy", "message" or "done": what is being done, or what failed. */
export const start = new Store(null);

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(NAME) ?? "{}");
  } catch {
    return {};
  }
}

/** A new id; `crypto.randomUUID` is missing where the page came without TLS. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const content = (message) => [{ type: "text", text: message }];

/** Start a conversation with what was typed. Resolves to its id, or to null after a failure, which `start` tells. */
export async function begin(signal) {
  const { spec, title, message, policy } = draft.get();
  const body = { conversation_id: newId(), sandbox_spec_id: spec || undefined, title: title.trim() || undefined };
  if (message.trim() && !policy) body.initial_message = { content: content(message) };
  start.set({ task: null, step: "start", error: null });
  try {
    start.set({ task: await created(body), step: "start", error: null });
  } catch (error) {
    start.set({ task: null, step: "start", error });
    return null;
  }
  return finish(signal);
}

/** The start task of a request. A response that got lost is no second start: the task is found by its conversation. */
async function created(body) {
  try {
    return await call("POST /api/v1/app-conversations", { body });
  } catch (error) {
    if (error.status !== 0) throw error;
    const query = { conversation_id__eq: body.conversation_id, limit: 1 };
    const { items } = await call("GET /api/v1/app-conversations/start-tasks/search", { query });
    if (!items.length) throw error;
    return items[0];
  }
}

/** Go on with a start: wait for the agent, then do what comes after. Resolves as `begin` does. */
export async function finish(signal) {
  const present = start.get();
  try {
    const task = await watched(present.task, signal);
    if (task.status !== "READY") return null;
    await afterwards(task, present.step);
    start.set(null);
    draft.set({ ...BLANK, spec: draft.get().spec, policy: draft.get().policy });
    return task.app_conversation_id ?? task.request.conversation_id;
  } catch (error) {
    if (!signal.aborted) start.set({ ...start.get(), error });
    return null;
  }
}

/** The policy before the message: no action of the agent may come before the policy that the person chose. */
async function afterwards(task, step) {
  const { message, policy } = draft.get();
  const path = { conversation_id: task.app_conversation_id };
  if (!policy) return;
  if (step !== "message") {
    start.set({ task, step: "policy", error: null });
    const chosen = policy === "ConfirmRisky" ? { kind: policy, threshold: "MEDIUM", confirm_unknown: true } : { kind: policy };
    await call("POST /api/conversations/{conversation_id}/confirmation_policy", { path, body: { policy: chosen } });
  }
  if (!message.trim()) return;
  start.set({ task, step: "message", error: null });
  await call("POST /api/v1/app-conversations/{conversation_id}/send-message", { path, body: { content: content(message) } });
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
