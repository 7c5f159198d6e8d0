// One decision for several actions. The actions of a conversation are decided by one request.
import { useEffect, useRef, useState } from "preact/hooks";
import { decideAll } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { nameOf } from "../lib/pending.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { DecisionButton } from "./connection.js";
import { riskOf, RISKS } from "./prompt_filters.js";
import { onEnter, onEscape } from "./reject.js";
import { lookOf, onceHeld, useSecondPress, useSteady } from "./steady.js";

/** Identity of a set of items. When it changes, buttons ignore presses for a moment again. */
export const namesOf = (items) => items.map((item) => `${nameOf(item)} ${item.digest}`).join();

/** Asks for the reason of a rejection of all items. */
export function RejectSeveral({ items, onCancel }) {
  const [element, press] = useSteady(namesOf(items));
  const [reason, setReason] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus({ preventScroll: true }), []);
  const submit = (event) =>
    press(event, () => decideAll(items, "reject", reason.trim() ? { reason: reason.trim() } : {}));
  return html`<form ref=${element} onSubmit=${submit} onKeyDown=${onEscape(onCancel)}>
    <textarea rows="1" ref=${field} maxlength="2000" aria-label="Why are they rejected?"
      placeholder="Reason (optional). The agents read it when they continue." data-testid="reason-for-all"
        value=${reason}
      onInput=${(event) => setReason(event.target.value)} onKeyDown=${onEnter(submit)}></textarea>
    <${DecisionButton} type="submit" class="danger" data-testid="reject-all">Reject ${items.length}<//>
    <button type="button" class="quiet" onClick=${onCancel}>Cancel</button>
  </form>`;
}

function SeveralButtons({ items, onReject, onClear }) {
  const [element, press] = useSteady(namesOf(items));
  const isHigh = items.some((item) => riskOf(item) === "HIGH"),
    [isAsked, confirm] = useSecondPress(isHigh);
  const approve = (event) => press(event, () => confirm(() => decideAll(items, "approve")));
  useShortcuts(
    {
      A: { label: "Approve all that are chosen", run: approve },
      R: { label: "Reject all that are chosen", run: onReject },
    },
    "Decisions",
  );
  return html`<div ref=${element} onKeyDown=${onceHeld}>
    <${DecisionButton} class=${lookOf(isHigh, isAsked)} data-testid="approve-all" aria-keyshortcuts="Shift+A"
      onClick=${approve}>${isAsked ? "High risk: press again" : `Approve ${items.length}`}<//>
    <button type="button" class="secondary" data-testid="reject-chosen" aria-keyshortcuts="Shift+R"
      onClick=${onReject}>Reject…</button>
    <button type="button" class="quiet" onClick=${onClear}>Clear</button>
  </div>`;
}

/** The risks of items, in words, the highest first: "2 high, 7 low risk". */
function risksOf(items) {
  const numbers = Object.keys(RISKS).map((risk) => [risk, items.filter((item) => riskOf(item) === risk).length]);
  const words = numbers.filter(([, number]) => number).map(([risk, number]) => `${number} ${risk.toLowerCase()}`);
  return `${words.join(", ")} risk`;
}

/** The bar with the decisions about the chosen items. */
export default function Several({ items, onClear }) {
  const [isRejecting, setRejecting] = useState(false);
  return html`<div class="several" data-testid="several">
    <p><strong>${items.length} chosen</strong> <span class="muted">${risksOf(items)}</span></p>
    ${
      isRejecting
        ? html`<${RejectSeveral} items=${items} onCancel=${() => setRejecting(false)} />`
        : html`<${SeveralButtons} items=${items} onReject=${() => setRejecting(true)} onClear=${onClear} />`
    }
  </div>`;
}
