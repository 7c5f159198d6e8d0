// A return to an earlier event: what it has left behind, folded, and how to undo it.
import { useContext, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { counted } from "../lib/words.js";
import { attempt, tell } from "../parts/notices.js";
import { Clock } from "../parts/time.js";
import { EventRow } from "./event.js";
import { Returns } from "./here.js";
import { rowsOf } from "./rows.js";

/** Return to an event, or undo that. Resolves to undefined where it is refused, which the person has been told. */
export function goBack(id, eventId) {
  return attempt(() =>
    call("POST /api/v1/app-conversations/{conversation_id}/return", {
      path: { conversation_id: id },
      body: { event_id: eventId },
    }),
  );
}

/**
 * event: of the return. left: the events that it has left behind. focus: the id of an event that the address names, or
 * null.
 */
export function Returned({ id, event, left, focus }) {
  const [isOpen, setOpen] = useState(left.some((one) => one.id === focus)),
    [isBusy, setBusy] = useState(false),
    mayReturn = useContext(Returns);
  const undo = async () => {
    setBusy(true);
    const made = await goBack(id, event.value.left_event_id);
    setBusy(false);
    if (made) tell("Undone: the conversation and its files are as they were before the return.");
  };
  return html`<li class=${`event entry change${event.id === focus ? " focus" : ""}`} data-testid=${`event-${event.id}`}
    data-kind="return" tabindex="-1">
    <div class="head"><span class="label">Returned to an earlier event</span>
      ${
        mayReturn &&
        html`<button type="button" class="quiet" data-testid="undo-return" aria-busy=${isBusy}
        disabled=${isBusy} onClick=${undo}>Undo</button>`
      }
      <${Clock} at=${event.timestamp} /></div>
    ${
      left.length > 0 &&
      html`<details class="left" open=${isOpen} onToggle=${(change) => setOpen(change.target.open)}>
      <summary data-testid="left-behind">${counted(left.length, "event")} left behind</summary>
      ${
        isOpen &&
        html`<ol>${rowsOf(left).map(
          (row) => html`<${EventRow} key=${row.event.id} row=${row} isFocus=${row.event.id === focus} />`,
        )}</ol>`
      }
    </details>`
    }
  </li>`;
}
