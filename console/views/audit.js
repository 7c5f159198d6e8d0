// The audit: who decided what, of all conversations, with filters that the address keeps.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, download } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useAgain } from "../lib/read.js";
import { setQuery } from "../lib/router.js";
import { AuditEntry, chainOf, Verification } from "../parts/audit_entry.js";
import { AuditFilters, isFiltered } from "../parts/audit_filters.js";
import { attempt, Empty, Failure, Loading } from "../parts/notices.js";

/** Entries of a page; most that are shown; reads for one page, as the server may end a page early. */
const PAGE = 50,
  MOST = 1_000,
  MOST_READS = 5;

/** Events that one request reads: their ids are a part of its address. */
const MOST_IDS = 50;

/** Debounce of the search, in milliseconds. */
const PAUSE = 250;

/** Entries of the next page, and the cursor after it: {items, next}. */
async function read(filters, cursor, signal) {
  const items = [];
  let next = cursor;
  for (let reads = 0; reads < MOST_READS && items.length < PAGE; reads++) {
    const query = { ...filters, sort_order: "TIME_DESC", limit: PAGE - items.length, page_id: next };
    const page = await call("GET /api/v1/audit", { query, signal });
    items.push(...page.items);
    next = page.next_page_id;
    if (!next) break;
  }
  return { items, next };
}

/** The entries that pass the filters, read by pages: {items, next, error, isReading, more}. */
function useAudit(filters) {
  const name = JSON.stringify(filters);
  const [state, setState] = useState(/** @type {any} */ ({ items: null }));
  const ending = useRef(null);
  const load = (before, cursor) => {
    const { signal } = ending.current;
    setState((now) => ({ ...now, error: null, isReading: true }));
    read(filters, cursor, signal).then(
      ({ items, next }) => signal.aborted || setState({ name, items: [...before, ...items], next }),
      (error) => signal.aborted || setState((now) => ({ ...now, error, isReading: false })),
    );
  };
  const begin = () => {
    const end = (ending.current = new AbortController());
    const timer = setTimeout(() => load([], null), state.items ? PAUSE : 0);
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  };
  useEffect(begin, [name]);
  const { items, next } = state;
  const isStale = state.name !== name; // what is shown passed other filters: nothing goes on from it
  const more = () => (isStale ? load([], null) : load(items, next));
  useAgain(state.error, more);
  return { ...state, isStale, more };
}

/** The ids of the actions of some entries, by their conversations: [conversation_id, ids], MOST_IDS at most. */
function actionsOf(items) {
  const named = Map.groupBy(
    items.filter((entry) => entry.conversation_id && entry.action_ids.length),
    (entry) => entry.conversation_id,
  );
  return [...named].flatMap(([conversation, entries]) => {
    const ids = [...new Set(entries.flatMap((entry) => entry.action_ids))];
    const starts = Array.from({ length: Math.ceil(ids.length / MOST_IDS) }, (_, place) => place * MOST_IDS);
    return starts.map((start) => [conversation, ids.slice(start, start + MOST_IDS)]);
  });
}

/** What was decided: events by `conversation_id id`, read once each. A log that is deleted has none of them. */
function useActions(items) {
  const [events, setEvents] = useState(/** @type {Map<string, any>} */ (new Map()));
  const asked = useRef(new Set());
  useEffect(() => {
    const fresh = (items ?? []).filter((entry) => !asked.current.has(entry.hash));
    for (const { hash } of fresh) asked.current.add(hash);
    for (const [conversation_id, id] of actionsOf(fresh)) {
      call("GET /api/v1/conversation/{conversation_id}/events", { path: { conversation_id }, query: { id } }).then(
        (found) => {
          const read = found.filter(Boolean).map((event) => [`${conversation_id} ${event.id}`, event]);
          setEvents((before) => new Map([...before, ...read]));
        },
        () => {}, // the entry says what it says without them
      );
    }
  }, [items]);
  return (entry) =>
    entry.action_ids.map((id) => events.get(`${entry.conversation_id} ${id}`)).filter((event) => event !== undefined);
}

function Entries({ audit, query }) {
  const actions = useActions(audit.items);
  const { items, next, error, isReading, isStale, more } = audit;
  if (!items) return error ? html`<${Failure} error=${error} again=${more} />` : html`<${Loading} />`;
  const isFull = items.length >= MOST;
  return html`${
    !items.length &&
    !next &&
    !isStale &&
    html`<${Empty} title=${isFiltered(query) ? "No decision passes these filters" : "Nothing was decided yet"}>
      ${
        isFiltered(query)
          ? html`<button type="button" class="quiet"
        onClick=${() => setQuery({}, true)}>Clear the filters</button>`
          : "Each decision about a pending action stands here, of people, rules and deadlines."
      }
    <//>`
  }
    <ol class="rows audit" data-testid="audit-list">
      ${items.map(
        (entry) => html`<${AuditEntry} key=${`${chainOf(entry)} ${entry.seq}`} entry=${entry}
        actions=${actions(entry)}
        onOnly=${(chain) => setQuery({ ...query, conversation_id: undefined, chain: undefined, ...chain }, true)} />`,
      )}
    </ol>
    ${error && html`<${Failure} error=${error} again=${more} />`}
    ${
      isFull &&
      next &&
      html`<p class="muted">
      ${MOST.toLocaleString("en")} are shown, and no more at once: filters find the others, and an export has all.</p>`
    }
    ${
      !isFull &&
      next &&
      !error &&
      html`<p class="more"><button type="button" class="secondary" aria-busy=${isReading} disabled=${isReading}
      onClick=${more}>Show more</button></p>`
    }`;
}

export default function AuditView({ place: { query } }) {
  const audit = useAudit(query);
  const [isSaving, setSaving] = useState(false);
  const save = async () => {
    setSaving(true);
    const filters = { ...query, format: "jsonl" };
    await attempt(() => download("GET /api/v1/audit", { query: filters, name: "audit.jsonl" }));
    setSaving(false);
  };
  return html`<section class="audit-view">
    <div class="view-head">
      <h1>Audit</h1>
      <button type="button" class="secondary" data-testid="export" aria-busy=${isSaving} disabled=${isSaving}
        onClick=${save}>Export as JSON lines</button>
    </div>
    <${AuditFilters} query=${query} />
    ${query.conversation_id && html`<${Verification} key=${query.conversation_id} id=${query.conversation_id} />`}
    ${query.chain && html`<${Verification} key=${query.chain} id=${query.chain} isDay />`}
    <${Entries} audit=${audit} query=${query} />
  </section>`;
}
