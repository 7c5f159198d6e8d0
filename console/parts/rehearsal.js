// What a rule would have done with what people have decided: at once of the last decisions, on demand of all.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Milliseconds without a change after which a draft is rehearsed, and between two questions about a rehearsal. */
const STILL = 500,
  POLL = 700;

const VERBS = { approve: "approved", reject: "rejected", edit: "edited" };

const number = (value) => value.toLocaleString("en");

const later = (milliseconds, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => clearTimeout(timer));
  });

/** Rehearse on all decisions in the background. onFound(): with what it has found so far. */
async function rehearseAll(body, signal, onFound) {
  let found = await call("POST /api/v1/approval-rules/rehearsals", { body });
  while (found.state === "running" && !signal.aborted) {
    onFound(found);
    await later(POLL, signal);
    found = await call("GET /api/v1/approval-rules/rehearsals/{rehearsal_id}", { path: { rehearsal_id: found.id } });
  }
  if (!signal.aborted) onFound(found);
}

/** Decisions of people, a line each. */
export function RehearsedDecisions({ items }) {
  return html`<ul class="decided">
    ${items.map(
      (one) => html`<li key=${`${one.conversation_id} ${one.action_id}`}>
        <code><${Text} text=${one.text} /></code>
        <small class="muted">
          ${VERBS[one.decision]} by <${Text} text=${one.actor.name || "somebody"} prose /> <${Time} at=${one.time} />
          ${one.conversation_title && html` in <${Text} text=${one.conversation_title} prose />`}
        </small>
      </li>`,
    )}
  </ul>`;
}

function Found({ found, decision, isAll }) {
  const contrary = found.examples.filter((one) => one.decision !== decision);
  const last = isAll ? "" : "last ";
  return html`<p data-testid="rehearsed">
      Would have answered <strong>${number(found.answered)}</strong> of the ${last}
        ${number(found.decided)} decisions of people;
      ${
        found.rejected
          ? html` <strong class="contrary">
        ${number(found.rejected)} of them a person decided otherwise.</strong>`
          : " none of them was decided otherwise."
      }
      ${found.unread > 0 && ` ${number(found.unread)} could not be read.`}
    </p>
    ${contrary.length > 0 && html`<${RehearsedDecisions} items=${contrary} />`}
    ${
      found.rejected > contrary.length &&
      html`<p class="muted">and ${number(found.rejected - contrary.length)} more</p>`
    }`;
}

/**
 * A draft that is rehearsed whenever it changes. rule: as POST /api/v1/approval-rules takes it; lacks: what it lacks
 * still, "" for nothing.
 */
export function Rehearsal({ rule, lacks }) {
  const body = !lacks ? JSON.stringify({ ...rule, expires_at: null, max_uses: null, reason: "" }) : "";
  const [state, setState] = useState(/** @type {Record<string, any>} */ ({}));
  const [asked, askAll] = useState("");
  useEffect(() => {
    const end = new AbortController();
    const rehearse = async () => {
      await later(STILL, end.signal);
      const found = await call("POST /api/v1/approval-rules/rehearse", { body: JSON.parse(body) });
      if (!end.signal.aborted) setState({ body, found, isAll: !found.next_page_id });
    };
    if (body) rehearse().catch((error) => end.signal.aborted || setState({ body, error }));
    return () => end.abort();
  }, [body]);
  useEffect(() => {
    const end = new AbortController();
    const take = (found) => setState({ body, found, isAll: true, isRunning: found.state === "running" });
    if (asked && asked === body) {
      rehearseAll(JSON.parse(body), end.signal, take).catch(
        (error) => end.signal.aborted || setState({ body, error, isAll: false }),
      );
    }
    return () => end.abort();
  }, [asked, body]);
  if (!body || state.body !== body) {
    return html`<p class="muted">
      ${body ? "Trying it on what people have decided…" : `${lacks} to try the rule on what people have decided.`}</p>`;
  }
  const { found, error, isAll, isRunning } = state;
  return html`<div class="rehearsal" data-testid="rehearsal" aria-live="polite">
    ${error && html`<p class="muted">${error.message}</p>`}
    ${found && html`<${Found} found=${found} decision=${rule.decision} isAll=${isAll} />`}
    ${
      isRunning &&
      html`<p class="muted"
      aria-busy="true">Read ${number(found.read)} of ${number(found.of)} entries</p>`
    }
    ${found?.detail && html`<p class="muted">${found.detail}</p>`}
    ${
      !isAll &&
      html`<p><button type="button" class="secondary" data-testid="rehearse-all" onClick=${() => askAll(body)}>
        Try it on all decisions</button></p>`
    }
  </div>`;
}
