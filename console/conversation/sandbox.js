// The sandbox of a conversation: its state, its log as it grows, pause and resume.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { bytes, dollars } from "../lib/words.js";
import { attempt, Failure } from "../parts/notices.js";
import { SandboxLog } from "../parts/sandbox_log.js";
import { SANDBOX, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two polls of the sandbox. */
const LOOK = 5;

/** Read the sandbox of a conversation; null if it has none. */
async function read(conversationId, signal) {
  const [conversation] = await call("GET /api/v1/app-conversations", { query: { ids: conversationId }, signal });
  if (!conversation?.sandbox_id) return null;
  const [sandbox] = await call("GET /api/v1/sandboxes", { query: { id: conversation.sandbox_id }, signal });
  if (!sandbox) return { id: conversation.sandbox_id, status: "MISSING", status_detail: "It was deleted." };
  const spent = await call("GET /api/v1/sandboxes/{sandbox_id}/spending", { path: { sandbox_id: sandbox.id }, signal });
  return { ...sandbox, spent };
}

function SandboxLogFold({ sandboxId }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.target.open)} data-testid="sandbox-log">
    <summary>Log</summary>${isOpen && html`<${SandboxLog} id=${sandboxId} />`}
  </details>`;
}

const count = (number) => number.toLocaleString("en");

/**
 * What the sandbox has spent on models, and its budget. The egress proxy counts, so no agent can change the figures.
 */
function Spent({
  of: { calls, refused, tokens, dollars: spent, unpriced_tokens: unpriced, budget, allowed_dollars, allowed_tokens },
}) {
  const ofDollars = budget.dollars === null ? "" : ` of ${dollars(budget.dollars + allowed_dollars)}`;
  const ofTokens = budget.tokens === null ? "" : ` of ${count(budget.tokens + allowed_tokens)}`;
  const isUnknown = unpriced > 0 && !spent;
  return html`${isUnknown ? "" : `${dollars(spent)}${ofDollars}, `}${count(tokens)}
    ${ofTokens} tokens in ${count(calls)} ${calls === 1 ? "call" : "calls"}
    ${unpriced > 0 && html`<br /><span class="muted">The price of ${count(unpriced)} tokens is not known.</span>`}
    ${refused > 0 && html`<br /><span class="high">Refused because a budget is used up: ${count(refused)}</span>`}`;
}

function Verb({ sandbox, onDone }) {
  const [isBusy, setBusy] = useState(false);
  const name = { RUNNING: "pause", PAUSED: "resume", ERROR: "resume" }[sandbox.status];
  if (!name || !may("write")) return null;
  const operation =
    name === "pause" ? "POST /api/v1/sandboxes/{sandbox_id}/pause" : "POST /api/v1/sandboxes/{sandbox_id}/resume";
  const act = async () => {
    setBusy(true);
    await attempt(() => call(operation, { path: { sandbox_id: sandbox.id } }));
    setBusy(false);
    onDone();
  };
  const label = name === "pause" ? "Pause the sandbox" : "Resume the sandbox";
  return html`<button type="button" class="secondary" data-testid=${name} aria-busy=${isBusy} disabled=${isBusy}
    onClick=${act}>${label}</button>`;
}

export function Sandbox({ conversationId }) {
  const { value, error, again } = useRead((signal) => read(conversationId, signal), {
    every: LOOK,
    key: conversationId,
  });
  if (error && value === undefined) return html`<${Failure} error=${error} again=${again} />`;
  if (value === undefined) return null;
  if (value === null) return html`<h2>Sandbox</h2><p class="muted">None: an external program posts the events.</p>`;
  return html`<section class="sandbox" data-testid=${`sandbox-${value.id}`} aria-label="Sandbox">
    <h2><a href=${href("sandboxes", value.id)}>Sandbox</a> <${State} of=${SANDBOX} status=${value.status} /></h2>
    <dl>
      <div><dt>Since</dt><dd><${Time} at=${value.status_since ?? value.created_at} /></dd></div>
      <div><dt>Spec</dt><dd>${value.sandbox_spec_id ?? "–"}</dd></div>
      ${value.host && html`<div><dt>Host</dt><dd>${value.host}</dd></div>`}
      ${value.memory_bytes != null && html`<div><dt>Memory</dt><dd>${bytes(value.memory_bytes)}</dd></div>`}
      ${value.cpu_cores != null && html`<div><dt>CPU</dt><dd>${value.cpu_cores.toFixed(2)} cores</dd></div>`}
      ${value.disk_bytes != null && html`<div><dt>Disk</dt><dd>${bytes(value.disk_bytes)}</dd></div>`}
      ${
        (value.spent?.calls > 0 || value.spent?.refused > 0) &&
        html`<div><dt title="Counted by this server from the responses of the models">Spent on models</dt><dd
        data-testid="spent"><${Spent} of=${value.spent} /></dd></div>`
      }
    </dl>
    ${value.status_detail && html`<pre><${Text} text=${value.status_detail} /></pre>`}
    <${Verb} sandbox=${value} onDone=${again} />
    ${may("write") && may("approve") && html`<${SandboxLogFold} sandboxId=${value.id} />`}
  </section>`;
}
