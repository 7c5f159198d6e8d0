// One decision for all pending actions of a conversation, where its agent takes no other: all of them are shown first.
import { useState } from "preact/hooks";
import { decide } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { nameOf } from "../lib/pending.js";
import { Arguments } from "./arguments.js";
import { DecisionButton } from "./connection.js";
import { onEscape } from "./reject.js";
import { onceHeld, useSteady } from "./steady.js";
import { Text } from "./text.js";

/** items: the group. One that joins after the form opened is shown first, at a press: nothing unseen is decided. */
export default function Together({ item, items, verb, onClose }) {
  const [group, setGroup] = useState(items);
  const [element, press] = useSteady(group);
  const [reason, setReason] = useState("");
  const others = group.filter((one) => one.action_id !== item.action_id);
  const isOther = items.map(nameOf).join() !== group.map(nameOf).join();
  const isReject = verb === "reject",
    number = group.length;
  const submit = (event) =>
    press(event, () => decide(group, verb, isReject && reason.trim() ? { reason: reason.trim() } : {}));
  return html`<form class="panel" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <p>The agent of this conversation takes one decision for all ${number} actions. The others are:</p>
    ${others.map(
      (one) => html`<section key=${one.action_id}><h3><code><${Text} text=${one.tool_name} /></code></h3>
      <${Arguments} tool=${one.tool_name} arguments=${one.arguments} /></section>`,
    )}
    ${
      isReject &&
      html`<label>Reason (optional). The agent reads it.<input type="text" maxlength="2000"
      data-testid="reason" value=${reason} onInput=${(event) => setReason(event.target.value)} /></label>`
    }
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      ${
        isOther
          ? html`<button key="look" type="button" data-testid="look-again"
          onClick=${() => setGroup(items)}>These have changed: show all ${items.length}</button>`
          : html`<${DecisionButton} key="decide" type="submit" class=${isReject ? "danger" : ""} data-testid="together">
          ${isReject ? "Reject" : "Approve"} all ${number}<//>`
      }
    </footer>
  </form>`;
}
