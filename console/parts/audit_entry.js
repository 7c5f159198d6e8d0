// One entry of the audit; and the verification of all entries of a conversation in this browser.
import { useState } from "preact/hooks";
import { address, call } from "../lib/api.js";
import { canVerify, verify } from "../lib/audit_chain.js";
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";
import { Arguments } from "./arguments.js";
import { ACTORS, DECISIONS } from "./audit_filters.js";
import { isOpen } from "./outcome.js";
import { Folded, Text } from "./text.js";
import { Time } from "./time.js";

/** Decision of a new rule for a destination. The entry of its creation has the decision as its reason. */
const RULES = { approve: "Allows", reject: "Refuses" };

/** How long a decision about a destination holds, in words. */
const SCOPES = { once: "once", conversation: "for the conversation", always: "always" };

/** Colour of a decision, by whether it let the action run. */
const LOOKS = { approve: "low", edit: "low", reject: "high", unapproved: "high", refused: "high" };

/** Name of the chain of an entry: the day of its destinations, or the id of its conversation. */
export function chainOf(entry) {
  return entry.chain ?? entry.conversation_id;
}

/**
 * actions: the events that it is about, as far as the log has them. onOnly({conversation_id} or {chain}): show the
 * entries of this chain alone.
 */
export function AuditEntry({ entry, actions, onOnly }) {
  const { actor, decision, chain, conversation_id } = entry;
  const rule = decision === "rule_made" && entry.destination ? RULES[entry.reason] : null,
    reason = rule ? "" : entry.reason;
  const decided = actions.map(
    (event) => html`<${AuditDecided} key=${event.id} event=${event} isEdited=${decision === "edit"} />`,
  );
  return html`<li class="row entry" data-testid=${`entry-${chainOf(entry)}-${entry.seq}`}>
    <span class="when"><${Time} at=${entry.time} /></span>
    <div class="what">
      <strong class=${LOOKS[decision] ?? ""}>${DECISIONS[decision] ?? decision}</strong>
      ${rule && html`<span>${rule}</span>`}
      <${Subject} entry=${entry} />
      ${actor.kind !== "sandbox" && html`<${Who} actor=${actor} />`}
    </div>
    ${!entry.shown && decided}
    ${
      reason &&
      html`<p class="reason"><${Folded} text=${reason}>
      ${(text) => html`<${Text} text=${text} prose />`}<//></p>`
    }
    <details class="quiet">
      <summary>Entry ${entry.seq}</summary>
      ${entry.shown && decided}
      <${AuditFacts} entry=${entry} />
      <button type="button" class="quiet" onClick=${() => onOnly(chain ? { chain } : { conversation_id })}>
        ${chain ? "This day's destinations and rules alone" : "This conversation alone"}</button>
    </details>
  </li>`;
}

/** Who decided: a person by the name of the key, others by their kind. The id of a rule is among the facts. */
function Who({ actor: { kind, name, address } }) {
  if (kind === "rule") return html`<a class="muted" href=${href("rules")}>${ACTORS.rule}</a>`;
  const words =
    kind === "key" || kind === "person"
      ? html`<${Text} text=${isOpen(name) ? "you" : name} />`
      : html`${ACTORS[kind] ?? kind}${name && name !== kind && html`: <${Text} text=${name} />`}`;
  return html`<span class="muted">${words}${address && ` · ${address}`}</span>`;
}

/** What was decided in one line: the first command, and how many others there were. */
function AuditShown({ shown: [first], edited: [became] = [], number }) {
  return html`<code class="command"><${Text} text=${first?.text ?? "an action"} /></code>
    ${became && html`<span>changed to</span> <code class="command"><${Text} text=${became.text} /></code>`}
    ${number > 1 && html`<span>and ${number - 1} more</span>`}`;
}

/** What was decided, as it was asked for: an edit runs other arguments, which the log of the conversation has. */
function AuditDecided({ event: { tool_name, action }, isEdited }) {
  const { kind: _, ...values } = Object(action);
  return html`<div class="decided" data-testid="decided">
    <p><code><${Text} text=${String(tool_name ?? "")} /></code>
      ${isEdited && html` <span class="muted">as it was before the edit</span>`}</p>
    <${Arguments} tool=${tool_name} arguments=${values} isBrief />
  </div>`;
}

/** What an entry is about, in the words of its line. */
function Subject({ entry }) {
  const { action_ids, decision, destination, budget, conversation_id, conversation_title, scope, shown, edited_shown } =
      entry,
    number = action_ids.length;
  const title = conversation_title ? html`<${Text} text=${conversation_title} prose />` : conversation_id?.slice(0, 8);
  const of =
    conversation_id &&
    html`<a class="of" href=${href("conversations", conversation_id, { event: action_ids[0] })}>${title}</a>`;
  if (budget) {
    return html`<span>${decision === "asked" && "for "}more of <code>${budget.setting}</code> for</span>
      <a href=${href("sandboxes", budget.sandbox_id)}>sandbox ${budget.sandbox_id.slice(0, 8)}
        </a> ${of && html`<span>in</span> ${of}`}`;
  }
  if (shown) return html`<${AuditShown} shown=${shown} edited=${edited_shown} number=${number} /><span>in</span> ${of}`;
  if (!destination && !of) return null; // of a rule that names no conversation
  if (!destination) return html`<span>${{ 0: "in", 1: "an action of" }[number] ?? `${number} actions of`}</span> ${of}`;
  const { name, port, sandbox_id } = destination;
  return html`<span><code>${name}:${port}</code>${scope && ` ${SCOPES[scope] ?? scope}`}${sandbox_id && " for"}</span>
    ${sandbox_id && html`<a href=${href("sandboxes", sandbox_id)}>sandbox ${sandbox_id.slice(0, 8)}</a>`} ${
      of && html`<span>in</span> ${of}`
    }`;
}

function AuditFacts({ entry }) {
  const { action_ids, actor, digests, edited = [], destination, budget } = entry,
    rule = entry.rule_id ?? (actor.kind === "rule" ? actor.name : null),
    asked = destination ?? budget;
  return html`<dl class="hashes">
    ${entry.chain && html`<div><dt>Chain</dt><dd>${entry.chain}</dd></div>`}
    ${entry.conversation_id && html`<div><dt>Conversation</dt><dd>${entry.conversation_id}</dd></div>`}
    ${asked?.sandbox_id && html`<div><dt>Sandbox</dt><dd>${asked.sandbox_id}</dd></div>`}
    ${budget?.key_id && html`<div><dt>Key</dt><dd>${budget.key_id}</dd></div>`}
    ${destination?.program && html`<div><dt>Program</dt><dd><${Text} text=${destination.program} /></dd></div>`}
    ${asked && digests[0] && html`<div><dt>As shown</dt><dd>${digests[0]}</dd></div>`}
    ${rule && html`<div><dt>Rule</dt><dd>${rule}</dd></div>`}
    ${action_ids.map(
      (id, place) => html`<div key=${place}>
        <dt>Action</dt>
        <dd><${Text} text=${id} /><br />as shown ${digests[place]}
          ${edited[place] && html`<br />as edited ${edited[place]}`}</dd>
      </div>`,
    )}
    <div><dt>Hash</dt><dd>${entry.hash}</dd></div>
    <div><dt>Hash before</dt><dd>${entry.previous || "none: it is the first"}</dd></div>
  </dl>`;
}

/**
 * Verifies one chain of the audit, whole, whatever the other filters are: of a conversation, or of a day's
 * destinations.
 */
export function Verification({ id, isDay }) {
  const [outcome, setOutcome] = useState(null);
  const path = isDay ? {} : { conversation_id: id },
    query = isDay ? { chain: id } : {};
  const operation = isDay ? "GET /api/v1/audit" : "GET /api/v1/conversation/{conversation_id}/audit";
  if (!canVerify) {
    const url = `${location.origin}${address(operation, { path, query })}`;
    return html`<div class="card">
      <p>This browser computes no hashes for an address without https. Where the server's programs are, this
        verifies it:</p>
      <pre data-testid="verify-command">python -m admin audit verify '${url}'</pre>
    </div>`;
  }
  const run = async () => {
    setOutcome({ isRunning: true });
    try {
      const lines = await call(operation, { path, query: { ...query, format: "jsonl" }, isLong: true });
      setOutcome({ ...(await verify(lines, id)), isTrue: true });
    } catch (error) {
      setOutcome({ error });
    }
  };
  return html`<div class="card verification">
    <button type="button" data-testid="verify" aria-busy=${outcome?.isRunning} disabled=${outcome?.isRunning}
      onClick=${run}>${isDay ? "Verify this day's audit" : "Verify this conversation's audit"}</button>
    <div role="status" data-testid="verified">
      ${
        outcome?.isTrue &&
        html`<p class="low"><strong>
          ${
            outcome.number === 1 ? "One entry verifies" : `${outcome.number.toLocaleString("en")} entries verify`
          }.</strong></p>
        <p class="muted">Its last hash, kept elsewhere, shows later whether entries were removed from the end: <code>
          ${outcome.hash || "none"}</code></p>`
      }
      ${outcome?.error && html`<p class="high"><strong>It does not verify.</strong> ${outcome.error.message}</p>`}
    </div>
  </div>`;
}
