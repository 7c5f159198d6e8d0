// The filters of the API over the timeline, with the number of events that pass them. The address has them.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useMedia } from "../lib/media.js";
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
      ${all.map(
        (option) => html`<option key=${option} ref=${(element) => element?.setAttribute("value", option)}>
        ${option}</option>`,
      )}
    </select>
  </label>`;
}

/** The search of a text. onStep(by): to an older match, or a newer one. */
function Search({ query, onStep }) {
  const [text, setText] = useState(query.text ?? "");
  const timer = useRef(0);
  useEffect(() => setText(query.text ?? ""), [query.text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const seek = (typed) => change(query, { text: typed });
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => seek(typed), TYPED);
  };
  const onKey = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(timer.current);
    if (text !== (query.text ?? "")) seek(text);
    else onStep(event.shiftKey ? -1 : 1);
  };
  return html`<label class="wide"><span class="name">Search messages, commands and output</span>
    <input type="search" placeholder="Search the conversation" data-search data-testid="filter-text" value=${text}
      onInput=${type} onKeyDown=${onKey} />
  </label>`;
}

/** The fields that choose by kind and source. set(name): what changes a filter. */
function FilterChoices({ filters, set }) {
  return html`
    <${Choice} label="Kind of event" testid="filter-kind" value=${filters.kind} options=${KINDS}
      onChange=${set("kind")} />
    <${Choice} label="From whom" testid="filter-source" value=${filters.source} options=${SOURCES}
      onChange=${set("source")} />
  `;
}

function Moment({ label, testid, value, onChange }) {
  return html`<label>${label}
    <input type="datetime-local" step="1" data-testid=${testid} value=${local(value)}
      onChange=${(event) => onChange(utc(event.target.value))} />
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
    <div class="plot-room">${
      Plot &&
      html`<${Plot} id=${id} log=${log} filters=${filters} total=${total}
      onChange=${(members) => change(query, members)} onJump=${jump} />`
    }</div>
    <div class="bar event-filters times">
      <${Moment} label="From" testid="filter-from" value=${filters.timestamp__gte} onChange=${set("timestamp__gte")} />
      <${Moment} label="To" testid="filter-to" value=${filters.timestamp__lt} onChange=${set("timestamp__lt")} />
      <${Moment} label="Jump to" testid="jump" value="" onChange=${jump} />
    </div>
  </div>`;
}

/** Of what has the text, the place of the event that the person is at; -1 where they are at none. */
const placeIn = ({ items }, focus) => items.findIndex(({ id }) => id === focus);

/** Go to the next older match of a text, or the next newer one; from the oldest to the newest, and back. */
function step(log, by) {
  const { items } = log.matches.get();
  if (!items.length) return;
  const present = placeIn({ items }, log.state.get().focus);
  const next = present < 0 ? (by > 0 ? 0 : items.length - 1) : (present + by + items.length) % items.length;
  log.reach(items[next]);
}

/**
 * The number of events that pass the filters, in words; with a text, which of them the person is at, and the way to the
 * others.
 */
function Count({ log, total, filters }) {
  const counted = useStore(log.count),
    matches = useStore(log.matches),
    { focus } = useStore(log.state);
  const { text } = filters,
    isMore = Boolean(text) && !matches.isWhole;
  const found = text ? (matches.items.length || matches.isWhole ? matches.items.length : null) : counted;
  const count = Object.values(filters).some(Boolean) ? found : total,
    place = text ? placeIn(matches, focus) : -1;
  const number = html`<span data-testid="match-count">${count === null ? "…" : count.toLocaleString("en")}</span>`;
  const at = place >= 0 && html`<span data-testid="match-place">${(place + 1).toLocaleString("en")}</span> of `;
  return html`<span class="number" data-testid="matches">${at}${number}
    ${isMore && " or more"} ${count === 1 && !isMore ? "event" : "events"}</span>
    ${
      text &&
      html`<button type="button" class="quiet" data-testid="match-older" aria-label="Older match"
        title="Older match (Enter in the search)" disabled=${!count} onClick=${() => step(log, 1)}>↑</button>
      <button type="button" class="quiet" data-testid="match-newer" aria-label="Newer match"
        title="Newer match (Shift+Enter in the search)" disabled=${!count} onClick=${() => step(log, -1)}>↓</button>`
    }`;
}

/** Whether a query has filters. */
export function isFiltered(query) {
  return Object.values(filtersOf(query)).some(Boolean);
}

/** log: the Log that has these filters. total: of the conversation's events. query: of the address. */
export function Filters({ id, log, total, query }) {
  const [hasPlot, setPlot] = usePanel("plot"),
    [isWide, setWide] = useState(false); // on a phone the other fields are opened, so that what is found has room
  const filters = filtersOf(query),
    { text, ...others } = filters,
    hasOthers = !useMedia("(max-width: 56rem)") || isWide || hasPlot || Object.values(others).some(Boolean);
  const set = (name) => (value) => change(query, { [name]: value });
  return html`<section class=${`narrow${text ? " sought" : ""}`} id="filters" aria-label="Filters">
    <div class="bar event-filters">
      <${Search} query=${query} onStep=${(by) => step(log, by)} />
      ${hasOthers && html`<${FilterChoices} filters=${filters} set=${set} />`}
      <p class="count" aria-live="polite">
        <${Count} log=${log} total=${total} filters=${filters} />
        ${
          isFiltered(query) &&
          html`<button type="button" class="quiet" data-testid="filter-reset"
          onClick=${() => setQuery({})}>Show all</button>`
        }
      </p>
      ${
        hasOthers
          ? html`<button type="button" class="quiet" data-testid="over-time" aria-expanded=${hasPlot}
            onClick=${() => setPlot(!hasPlot)}>Over time</button>`
          : html`<button type="button" class="quiet" data-testid="filter-others"
            onClick=${() => setWide(true)}>More filters</button>`
      }
    </div>
    ${hasPlot && html`<${OverTime} id=${id} log=${log} total=${total} query=${query} filters=${filters} />`}
  </section>`;
}
