// One entry of the audit; and the verification of all entries of a conversation in this browser.
import { useState } from "preact/hooks";
import { address, call } from "../lib/api.js";
import { canVerify, verify } from "../lib/audit_chain.js";
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";
import { ACTORS, DECISIONS } from "./audit_filters.js";
import { Folded, Text } from "./text.js";
import { Time } from "./time.js";

/** Look of a decision: what let an action run, and what did not. */
const LOOKS = { approve: "low", edit: "low", reject: "high", unapproved: "high" };

/** onOnly(id): show the entries of this conversation alone. */
export function AuditEntry({ entry, onOnly }) {
  const { actor, decision, action_ids, reason, conversation_id } = entry;
  const number = action_ids.length;
  return html`<li class="row entry" data-testid=${`entry-${conversation_id}-${entry.seq}`}>
    <span class="when"><${Time} at=${entry.time} /></span>
    <div class="what">
      <strong class=${LOOKS[decision] ?? ""}>${DECISIONS[decision] ?? decision}</strong>
      <span>${{ 0: "in", 1: "an action of" }[number] ?? `${number} actions of`}</span>
      <a href=${href("conversations", conversation_id)}>${conversation_id.slice(0, 8)}</a>
      <span class="muted">${ACTORS[actor.kind] ?? actor.kind}${actor.name && actor.name !== actor.kind && html`: <${Text} text=${actor.name} />`}${actor.address && ` from ${actor.address}`}</span>
    </div>
    ${reason && html`<p class="reason"><${Folded} text=${reason}>${(text) => html`<${Text} text=${text} prose />`}<//></p>`}
    <details class="quiet">
      <summary>Entry ${entry.seq}</summary>
      <${Facts} entry=${entry} />
      <button type="button" class="quiet" onClick=${() => onOnly(conversation_id)}>This conversation alone</button>
    </details>
  </li>`;
}

function Facts({ entry }) {
  const { action_ids, digests, edited = [] } = entry;
  return html`<dl class="hashes">
    <div><dt>Conversation</dt><dd>${entry.conversation_id}</dd></div>
    ${action_ids.map(
      (id, place) => html`<div key=${place}>
        <dt>Action</dt>
        <dd><${Text} text=${id} /><br />as shown ${digests[place]}${edited[place] && html`<br />as edited ${edited[place]}`}</dd>
      </div>`,
    )}
    <div><dt>Hash</dt><dd>${entry.hash}</dd></div>
    <div><dt>Hash before</dt><dd>${entry.previous || "none: it is the first"}</dd></div>
  </dl>`;
}

const OPERATION = "GET /api/v1/conversation/{conversation_id}/audit";

/** Verifies the audit of one conversation, whole, whatever the other filters are. */
export function Verification({ id }) {
  const [outcome, setOutcome] = useState(null);
  const path = { conversation_id: id };
  if (!canVerify) {
    const url = `${location.origin}${address(OPERATION, { path })}`;
    return html`<div class="card">
      <p>This browser computes no hashes for an address without https. Where the server's programs are, this verifies it:</p>
      <pre data-testid="verify-command">python -m admin audit verify '${url}'</pre>
    </div>`;
  }
  const run = async () => {
    setOutcome({ isRunning: true });
    try {
      const lines = await call(OPERATION, { path, query: { format: "jsonl" }, isLong: true });
      setOutcome({ ...(await verify(lines, id)), isTrue: true });
    } catch (error) {
      setOutcome({ error });
    }
  };
  return html`<div class="card verification">
    <button type="button" data-testid="verify" aria-busy=${outcome?.isRunning} disabled=${outcome?.isRunning} onClick=${run}>Verify this conversation's audit</button>
    <div role="status" data-testid="verified">
      ${outcome?.isTrue && html`<p class="low"><strong>${outcome.number === 1 ? "One entry verifies" : `${outcome.number.toLocaleString("en")} entries verify`}.</strong></p>
        <p class="muted">Its last hash, kept elsewhere, shows later whether entries were removed from the end: <code>${outcome.hash || "none"}</code></p>`}
      ${outcome?.error && html`<p class="high"><strong>It does not verify.</strong> ${outcome.error.message}</p>`}
    </div>
  </div>`;
}
