// Rejects an action with a reason, which the agent is told.
import { useEffect, useRef, useState } from "preact/hooks";
import { decide } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { onceHeld, useSteady } from "./steady.js";

export function Reject({ item, onClose }) {
  const [element, press] = useSteady();
  const [reason, setReason] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus({ preventScroll: true }), []);
  const submit = (event) => press(event,
    () => decide([item], "reject", reason.trim() ? { reason: reason.trim() } : {}));
  return html`<form class="panel" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <label>Reason (optional). The agent reads it when it continues.
      <textarea rows="2" ref=${field} maxlength="2000" data-testid="reason" placeholder="Enter to reject, Shift+Enter for a new line."
        value=${reason} onInput=${(event) => setReason(event.target.value)} onKeyDown=${onEnter(submit)}></textarea>
    </label>
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      <button type="submit" class="danger" data-testid="reject-now">Reject</button>
    </footer>
  </form>`;
}

/** Enter in a field of several lines submits its form, once; Shift+Enter begins a line. */
export function onEnter(submit) {
  return (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
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
