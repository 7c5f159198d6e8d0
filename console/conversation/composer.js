// Where a person writes to the agent and says when it works.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, newKey } from "../lib/api.js";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { useAway } from "../parts/connection.js";
import { attempt, tell } from "../parts/notices.js";
import { onceHeld, useSteady } from "../parts/steady.js";
import { Send } from "./send.js";

/** A text that was not sent stays in the browser's session, for each conversation. */
const kept = {
  name: (id) => `agent-server-draft-${id}`,
  get: (id) => sessionStorage.getItem(kept.name(id)) ?? "",
  set(id, text) {
    try {
      text ? sessionStorage.setItem(kept.name(id), text) : sessionStorage.removeItem(kept.name(id));
    } catch {
      // the browser's session is full: the text stays in the field
    }
  },
};

/** The buttons that fit a status: [label, testid, operation]. */
function verbs(status) {
  const pause = ["Pause", "pause", "POST /api/conversations/{conversation_id}/pause"];
  const interrupt = ["Interrupt", "interrupt", "POST /api/conversations/{conversation_id}/interrupt"];
  const run = ["Run", "run", "POST /api/conversations/{conversation_id}/run"];
  if (status === "running") return [pause, interrupt];
  if (status === "paused") return [["Resume", "resume", run[2]]];
  return ["idle", "error", "stuck"].includes(status) ? [run] : [];
}

const TITLES = {
  pause: "Stop the agent after its current step",
  interrupt: "Stop the agent now",
  run: "Let the agent work",
  resume: "Let the agent continue",
};

/** Says what a message would do to what waits. isAsked: Enter was pressed, which sends nothing then. */
function Warning({ number, isAsked }) {
  const what = number === 1 ? "the pending action" : `the ${number} pending actions`;
  if (!may("approve"))
    return html`<p class="warning medium"
      role="note">A message would reject ${what}, and your key cannot decide that.</p>`;
  if (isAsked)
    return html`<p class="warning high" role="alert"
      data-testid="rejects">Not sent: your message rejects ${what}. Press “Reject and send” if you mean that.</p>`;
  return html`<p class="warning medium" role="note">Sending a message rejects ${what}.</p>`;
}

/** Says how an agent goes on whose action was rejected. */
function Rejected({ log }) {
  const { events, newer } = useStore(log.state);
  const last = newer ? null : events.findLast(({ kind }) => !kind.endsWith("ConversationStateUpdateEvent"));
  if (!last?.kind.startsWith("UserReject")) return null;
  return html`<p class="warning" role="note"
    data-testid="after-rejection">The agent stopped after the rejection. Press Run to let it read your reason and
    continue.</p>`;
}

function Verbs({ id, status, onDone }) {
  const [busy, setBusy] = useState("");
  const act = async (testid, operation) => {
    setBusy(testid);
    const query = operation.endsWith("/run") ? { accepts: false } : {}; // an action may have begun to wait meanwhile
    await attempt(() => call(operation, { path: { conversation_id: id }, query }));
    setBusy("");
    onDone();
  };
  return verbs(status).map(
    ([
      label,
      testid,
      operation,
    ]) => html`<button key=${testid} type="button" class="secondary" data-testid=${testid} title=${TITLES[testid]}
      aria-busy=${busy === testid} disabled=${busy !== ""} onClick=${() => act(testid, operation)}>${label}</button>`,
  );
}

/** Send a message; null, or the fault. rejects: whether the person was told that it rejects what waits; else the server
 * refuses it where an action has come meanwhile. request: a ref to one that got no response: sent again, it has one
 * effect.
 */
async function post(id, text, run, rejects, request) {
  const name = JSON.stringify([text, run, rejects]);
  if (request.current?.name !== name) request.current = { name, once: newKey() };
  const body = { role: "user", content: [{ type: "text", text }], run, rejects };
  const { once } = request.current;
  try {
    await call("POST /api/conversations/{conversation_id}/events", { path: { conversation_id: id }, body, once });
    request.current = null;
    return null;
  } catch (fault) {
    if (fault.status) request.current = null;
    return fault;
  }
}

/** id, status, log: of the conversation. waiting: the number of its pending actions. onDone: after each request.
 *
 * While actions wait, a message rejects them: only a press of a button that says so sends it, and one counts only once
 * the
 * button has said it for a moment. An action may have come while the person was typing. */
export function Composer({ id, status, log, waiting, onDone }) {
  const [text, setText] = useState(() => kept.get(id));
  const [isSending, setSending] = useState(false),
    [isAsked, setAsked] = useState(false);
  const field = useRef(null),
    request = useRef(null),
    button = useRef(null);
  const came = useMemo(() => waiting && performance.now(), [waiting]),
    [buttons, press] = useSteady(came);
  useEffect(() => setAsked(false), [waiting]);
  useEffect(() => kept.set(id, text), [text]);
  useShortcuts({ c: { label: "Write a message", run: () => field.current?.focus() } });
  const isAllowed = !waiting || may("approve"),
    away = useAway();
  const send = async (run) => {
    const sent = text;
    if (!sent.trim() || isSending || !isAllowed || away) return;
    setSending(true);
    const fault = await post(id, sent, run, waiting > 0, request);
    setSending(false);
    if (fault) tell(fault.message, "failed");
    else setText((now) => (now === sent ? "" : now));
    onDone();
  };
  const ask = () => {
    setAsked(true);
    button.current?.focus();
  };
  const type = (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    if (event.repeat || !text.trim()) return;
    if (waiting) ask();
    else send(true);
  };
  const submit = (run) => (event) => (waiting ? press(event, () => send(run)) : (event.preventDefault(), send(run)));
  return html`<form class=${`composer${waiting ? " rejects" : ""}`} data-testid="composer"
    onSubmit=${(event) => event.preventDefault()}>
    ${waiting > 0 && html`<${Warning} number=${waiting} isAsked=${isAsked} />`}
    ${status === "idle" && html`<${Rejected} log=${log} />`}
    <textarea ref=${field} rows=${waiting ? 1 : 2} aria-label="Message to the agent"
      placeholder=${
        waiting ? "Tell the agent what to do instead." : "Message the agent. Enter to send, Shift+Enter for a new line."
      }
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${type}></textarea>
    ${
      away &&
      html`<p class="warning medium" role="note" data-testid="cannot-send">
      ${away} Your text stays here until you can send it.</p>`
    }
    <div class="buttons" ref=${buttons} onKeyDown=${onceHeld}>
      <span class="verbs"><${Verbs} id=${id} status=${status} onDone=${onDone} /></span>
      ${
        isAllowed &&
        html`<${Send} waiting=${waiting} button=${button} isDisabled=${!text.trim() || isSending} isSending=${isSending}
        onSend=${submit} />`
      }
    </div>
  </form>`;
}
