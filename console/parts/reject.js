// Rejects an action with a reason. The agent reads the reason and may go on at once.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { decide, fates } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { nameOf, pending } from "../lib/pending.js";
import { may } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { DecisionButton } from "./connection.js";
import { attempt, tell } from "./notices.js";
import { onceHeld, useSteady } from "./steady.js";

/**
 * Whether other actions of its conversation wait, or may: a run would approve them. all: what waits; null before it is
 * known.
 */
const hasOthers = (item, all) =>
  !all || all.some((one) => one.conversation_id === item.conversation_id && one.action_id !== item.action_id);

/** Drafts of reasons, by the names of their actions: the inbox shows one action at a time. */
const drafts = new Map();

export function Reject({ item, onClose }) {
  const [element, press] = useSteady();
  const isLast = !hasOthers(item, useStore(pending));
  const [reason, setReason] = useState(drafts.get(nameOf(item)) ?? "");
  const field = useRef(null);
  useEffect(() => field.current.focus({ preventScroll: true }), []);
  const input = ({ target: { value } }) => {
    drafts.set(nameOf(item), value);
    setReason(value);
  };
  const reject = () => decide([item], "reject", reason.trim() ? { reason: reason.trim() } : {});
  const rejectAndStop = (event) => press(event, reject);
  const rejectAndRun = (event) =>
    press(event, async () => {
      await reject();
      if (fates.get().get(nameOf(item))?.state !== "taken") return;
      if (hasOthers(item, pending.get()))
        return tell("Rejected. The agent goes on once the other actions are decided.");
      const options = { path: { conversation_id: item.conversation_id }, query: { accepts: false } };
      await attempt(() => call("POST /api/conversations/{conversation_id}/run", options));
    });
  // a reason tells the agent what to do instead, so the agent should go on
  const mayGoOn = may("write") && isLast,
    goesOn = mayGoOn && reason.trim() !== "",
    submit = goesOn ? rejectAndRun : rejectAndStop;
  return html`<form class="panel" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <label>Reason (optional). The agent reads it when it continues.
      <textarea rows="2" ref=${field} maxlength="2000" data-testid="reason"
        placeholder="Enter to reject, Shift+Enter for a new line."
        value=${reason} onInput=${input} onKeyDown=${onEnter(submit)}></textarea>
    </label>
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      <${DecisionButton} class=${goesOn ? "secondary" : "danger"} data-testid="reject-now"
        onClick=${rejectAndStop}>Reject<//>
      ${
        mayGoOn &&
        html`<button type="button" class=${goesOn ? "" : "secondary"} data-testid="reject-and-continue"
        title=${`The agent reads the reason and goes on at once${goesOn ? " (Enter)" : ""}`}
          onClick=${rejectAndRun}>Reject and continue</button>`
      }
    </footer>
  </form>`;
}

/** Enter in a field of several lines submits its form, once; Shift+Enter begins a line. */
export function onEnter(submit) {
  return (event) => {
    if (event.key === "Enter" && !event.shiftKey) submit(event);
  };
}

/** Escape closes a form of a prompt. */
export function onEscape(onClose) {
  return (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    onClose();
  };
}
