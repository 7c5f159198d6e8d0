// The filters of the audit. The address keeps them, under the names of the API.
import { html } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { fieldOf, timeOf } from "../lib/words.js";

/** Kinds of actors of the wire, in words. */
export const ACTORS = {
  key: "A key",
  link: "A one-time link",
  message: "A message",
  run: "A run",
  rule: "A rule",
  expiry: "A deadline",
  agent: "The agent",
  sandbox: "A sandbox",
  deletion: "A deletion",
  server: "The server",
  terminal: "A terminal",
  lease: "An agent's silence",
};

/** Decisions of the wire, in words. */
export const DECISIONS = {
  approve: "Approved",
  reject: "Rejected",
  edit: "Edited",
  deleted: "Deleted",
  unapproved: "Not approved by anybody",
  asked: "Asked",
  refused: "Refused",
  rule_made: "Rule made",
  rule_revoked: "Rule revoked",
  terminal_opened: "Terminal opened",
  terminal_closed: "Terminal closed",
  preview_opened: "Preview opened",
  push_begun: "Push",
  joined: "Sandbox joined",
  agree: "Approved, one of several",
  owner_changed: "Owner changed",
  mode_changed: "Approval mode set",
  withdrawn: "Withdrawn",
};

/** Filters that most people leave alone, and all. */
const RARE = ["time__gte", "time__lt", "actor_kind", "tool_name", "conversation_id"],
  NAMES = ["text", "actor", "decision", "chain", ...RARE];

/** Whether the query of the address filters anything. */
export function isFiltered(query) {
  return NAMES.some((name) => query[name]);
}

function AuditChoice({ label, name, query, words, onChange }) {
  return html`<label>${label}
    <select data-testid=${`filter-${name}`} value=${query[name] ?? ""} onChange=${onChange}>
      <option value="">All</option>
      ${Object.entries(words).map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}
    </select>
  </label>`;
}

export function AuditFilters({ query }) {
  const set =
    (name, of = (value) => value.trim()) =>
    (event) =>
      setQuery({ ...query, [name]: of(event.target.value) }, event.type === "change");
  return html`<form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    <div class="bar">
      <label class="wide">Search<input type="search" data-search data-testid="filter-text" maxlength="256" placeholder="Command, title or reason" value=${query.text ?? ""} onInput=${set("text", (value) => value)} /></label>
      <${AuditChoice} label="Decision" name="decision" query=${query} words=${DECISIONS} onChange=${set("decision")} />
      <label>Who<input data-testid="filter-actor" maxlength="256" placeholder="Full name" value=${query.actor ?? ""} onInput=${set("actor", (value) => value)} /></label>
      ${isFiltered(query) && html`<button type="button" class="quiet" onClick=${() => setQuery({}, true)}>Clear the filters</button>`}
    </div>
    <details class="quiet" open=${RARE.some((name) => query[name])} data-testid="more-filters">
      <summary>More filters</summary>
      <div class="bar">
      <${AuditChoice} label="By" name="actor_kind" query=${query} words=${ACTORS} onChange=${set("actor_kind")} />
      <label>Tool<input data-testid="filter-tool_name" placeholder="Full name" value=${query.tool_name ?? ""} onInput=${set("tool_name")} /></label>
      <label>Since<input type="datetime-local" data-testid="filter-time__gte" value=${fieldOf(query.time__gte)} onChange=${set("time__gte", timeOf)} /></label>
      <label>Before<input type="datetime-local" data-testid="filter-time__lt" value=${fieldOf(query.time__lt)} onChange=${set("time__lt", timeOf)} /></label>
      <label class="wide">Conversation<input data-testid="filter-conversation_id" placeholder="ID" value=${query.conversation_id ?? ""} onInput=${set("conversation_id")} /></label>
      </div>
    </details>
  </form>`;
}
