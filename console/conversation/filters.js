// The filters of the API over the timeline, with the number of events that pass them. The address has them.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { usePanel } from "../lib/panels.js";
import { setQuery } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { millis } from "../lib/words.js";

/** Kinds of events that are offered; the plot offers the others that the conversation has. */
const KINDS = [
  "MessageEvent",
  "ActionEvent",
  "ObservationEvent",
  "UserRejectObservation",
  "AgentErrorEvent",
  "ConversationErrorEvent",
  "ConversationStateUpdateEvent",
  "PauseEvent",
  "InterruptEvent",
  "SystemPromptEvent",
  "Condensation",
  "HookExecutionEvent",
];

const SOURCES = ["user", "agent", "environment"];

/** Milliseconds after the last letter until a text is searched for. */
const TYPED = 250;

/** The filters of a query, as members of the API. */
export function filtersOf({ kind = "", source = "", text = "", timestamp__gte = "", timestamp__lt = "" }) {
  return { kind, source, text, timestamp__gte, timestamp__lt };
}

/** A time of the wire as a field of the page has it, in the person's zone; and back. */
function local(time) {
  if (!time) return "";
  const at = new Date(millis(time));
  return Number.isNaN(at.getTime())
    ? ""
    : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function utc(value) {
  return value ? new Date(value).toISOString() : "";
}

function change(query, members) {
  const { event, ...rest } = query;
  setQuery({ ...rest, ...members });
}

// The attribute is set by hand: Preact leaves out a value that equals the text, and then no selector finds it.
function Choice({ label, testid, value, options, onChange }) {
  const all = value && !options.includes(value) ? [...options, value] : options;
  return html`<label>${label}
    <select data-testid=${testid} value=${value} onChange=${(event) => onChange(event.target.value)}>
      <option value="">All</option>
      ${all.map((option) => html`<option key=${option} ref=${(element) => element?.setAttribute("value", option)}>${option}</option>`)}
    </select>
  </label>`;
}

function Search({ query }) {
  const [text, setText] = useState(query.text ?? "");
  const timer = useRef(0);
  useEffect(() => setText(query.text ?? ""), [query.text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change(query, { text: typed }), TYPED);
  };
  return html`<label class="wide">Search messages, commands and output
    <input type="search" data-search data-testid="filter-text" value=${text} onInput=${type} />
  </label>`;
}

function Moment({ label, testid, value, onChange }) {
  return html`<label>${label}
    <input type="datetime-local" step="1" data-testid=${testid} value=${local(value)} onChange=${(event) => onChange(utc(event.target.value))} />
  </label>`;
}

/** The times of the filters, and the plot, which is loaded when it is first shown. */
function OverTime({ id, log, total, query, filters }) {
  const [Plot, setPlot] = useState(null);
  useEffect(() => {
    import("./plot.js").then(
      (module) => setPlot(() => module.default),
      () => {},
    );
  }, []);
  const set = (name) => (value) => change(query, { [name]: value });
  const jump = (time) => time && log.around(time);
  return html`<div class="over-time">
    <div class="plot-room">${Plot && html`<${Plot} id=${id} filters=${filters} total=${total} onChange=${(members) => change(query, members)} onJump=${jump} />`}</div>
    <div class="bar event-filters times">
      <${Moment} label="From" testid="filter-from" value=${filters.timestamp__gte} onChange=${set("timestamp__gte")} />
      <${Moment} label="To" testid="filter-to" value=${filters.timestamp__lt} onChange=${set("timestamp__lt")} />
      <${Moment} label="Jump to" testid="jump" value="" onChange=${jump} />
    </div>
  </div>`;
}

/** The number of events that pass the filters, in words: no route counts those with a text, so what is found is counted. */
function Count({ log, total, filters }) {
  const counted = useStore(log.count),
    { events, older, newer, loading } = useStore(log.state);
  const isFiltered = Object.values(filters).some(Boolean),
    isMore = Boolean(filters.text) && (older || newer);
  const found = filters.text ? (loading && !events.length ? null : events.length) : counted;
  const count = isFiltered ? found : total;
  return html`<span data-testid="match-count">${count === null ? "…" : count.toLocaleString("en")}</span>${isMore && " or more"} ${count === 1 && !isMore ? "event" : "events"}`;
}

/** Whether a query has filters. */
export function isFiltered(query) {
  return Object.values(filtersOf(query)).some(Boolean);
}

/** log: the Log that has these filters. total: of the conversation's events. query: of the address. */
export function Filters({ id, log, total, query }) {
  const [hasPlot, setPlot] = usePanel("plot");
  const filters = filtersOf(query);
  const set = (name) => (value) => change(query, { [name]: value });
  return html`<section class="narrow" id="filters" aria-label="Filters">
    <div class="bar event-filters">
      <${Search} query=${query} />
      <${Choice} label="Kind of event" testid="filter-kind" value=${filters.kind} options=${KINDS} onChange=${set("kind")} />
      <${Choice} label="From whom" testid="filter-source" value=${filters.source} options=${SOURCES} onChange=${set("source")} />
      <p class="count" aria-live="polite">
        ${isFiltered(query) && html`<button type="button" class="quiet" data-testid="filter-reset" onClick=${() => setQuery({})}>Show all</button>`}
        <${Count} log=${log} total=${total} filters=${filters} />
      </p>
      <button type="button" class="quiet" data-testid="over-time" aria-expanded=${hasPlot} onClick=${() => setPlot(!hasPlot)}>Over time</button>
    </div>
    ${hasPlot && html`<${OverTime} id=${id} log=${log} total=${total} query=${query} filters=${filters} />`}
  </section>`;
}
