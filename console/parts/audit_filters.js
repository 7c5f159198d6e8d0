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

/** Spans that one press filters by: days, today included, and their words. */
const SPANS = [
  [1, "Today"],
  [7, "7 days"],
  [30, "30 days"],
];

/** When a span of days begins that ends today: the midnight of this place, as a time of the wire. */
export function beginOf(days, at = new Date()) {
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() - days + 1).toISOString();
}

/** Whether the query has the begin of a span, and no end. */
const isSpan = ({ time__gte, time__lt }) => !time__lt && SPANS.some(([days]) => time__gte === beginOf(days));

/** A span that is pressed filters the entries since its begin; pressed again, it filters no more. */
function Spans({ query }) {
  const chosen = query.time__lt ? "" : query.time__gte;
  return html`<span class="inline spans" role="group" aria-label="Since when">${SPANS.map(([days, words]) => {
    const begin = beginOf(days),
      is = chosen === begin;
    const press = () => setQuery({ ...query, time__gte: is ? "" : begin, time__lt: "" }, true);
    return html`<button type="button" key=${days} class="quiet" data-testid=${`span-${days}`} aria-pressed=${is}
      onClick=${press}>${words}</button>`;
  })}</span>`;
}

export function AuditFilters({ query }) {
  const set =
    (name, of = (value) => value.trim()) =>
    (event) =>
      setQuery({ ...query, [name]: of(event.target.value) }, event.type === "change");
  return html`<form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    <div class="bar">
      <label class="wide">Search<input type="search" data-search data-testid="filter-text" maxlength="256"
        placeholder="Command, title or reason" value=${query.text ?? ""}
        onInput=${set("text", (value) => value)} /></label>
      <${AuditChoice} label="Decision" name="decision" query=${query} words=${DECISIONS} onChange=${set("decision")} />
      <label>Who<input data-testid="filter-actor" maxlength="256" placeholder="Full name" value=${query.actor ?? ""}
        onInput=${set("actor", (value) => value)} /></label>
      <${Spans} query=${query} />
      ${
        isFiltered(query) &&
        html`<button type="button" class="quiet"
        onClick=${() => setQuery({}, true)}>Clear the filters</button>`
      }
    </div>
    <details class="quiet" open=${RARE.some((name) => query[name] && !(name === "time__gte" && isSpan(query)))}
      data-testid="more-filters">
      <summary>More filters</summary>
      <div class="bar">
      <${AuditChoice} label="By" name="actor_kind" query=${query} words=${ACTORS} onChange=${set("actor_kind")} />
      <label>Tool<input data-testid="filter-tool_name" placeholder="Full name" value=${query.tool_name ?? ""}
        onInput=${set("tool_name")} /></label>
      <label>Since<input type="datetime-local" data-testid="filter-time__gte" value=${fieldOf(query.time__gte)}
        onChange=${set("time__gte", timeOf)} /></label>
      <label>Before<input type="datetime-local" data-testid="filter-time__lt" value=${fieldOf(query.time__lt)}
        onChange=${set("time__lt", timeOf)} /></label>
      <label class="wide">Conversation<input data-testid="filter-conversation_id" placeholder="ID"
        value=${query.conversation_id ?? ""} onInput=${set("conversation_id")} /></label>
      </div>
    </details>
  </form>`;
}
