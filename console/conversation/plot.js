// Events over time, by kind or source. A stretch that is drawn over with the pointer becomes the filter; a click jumps.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useMedia } from "../lib/media.js";
import { counted, exact } from "../lib/words.js";
import { Failure } from "../parts/notices.js";
import { useStore } from "../lib/store.js";
import { chart } from "./chart.js";
import { histogramOf } from "./histogram.js";

/** Series that have a colour; the others are one. Pixels of width of a bucket. Milliseconds between two readings. */
const MOST_SERIES = 6,
  BUCKET = 7,
  REFRESH = 5_000;

/** The histogram with at most MOST_SERIES series and "other". */
function condensed({ series, ...others }) {
  const names = Object.entries(series).filter(([name]) => name !== "other");
  const rest = [...names.slice(MOST_SERIES).map(([, counts]) => counts), ...(series.other ? [series.other] : [])];
  const other = rest.length
    ? [["other", rest.reduce((sum, counts) => sum.map((count, place) => count + counts[place]))]]
    : [];
  return { ...others, series: [...names.slice(0, MOST_SERIES), ...other] };
}

const sum = (counts) => counts.reduce((total, count) => total + count, 0);

/** Buckets of a plot so many pixels wide. */
const bucketsOf = (width) => Math.max(10, Math.min(200, Math.floor(width / BUCKET)));

/** The histogram, read again while events come, but not with each of them. isKnown: none is read. */
function useHistogram(id, query, total, width, isKnown) {
  const [state, setState] = useState({ found: null, error: null });
  const [attempt, setAttempt] = useState(0),
    reads = useRef(0);
  const name = JSON.stringify(query);
  const at = useRef({ name: "", time: 0 });
  useEffect(() => {
    if (!width || isKnown) return undefined;
    const isNew = at.current.name !== name + attempt,
      wait = isNew ? 0 : at.current.time + REFRESH - performance.now();
    const controller = new AbortController();
    const read = async () => {
      const number = (reads.current += 1);
      at.current = { name: name + attempt, time: performance.now() };
      try {
        const found = await call("GET /api/conversations/{conversation_id}/events/histogram", {
          path: { conversation_id: id },
          query: { ...query, buckets: bucketsOf(width) },
          signal: controller.signal,
        });
        if (number === reads.current) setState({ found: condensed(found), error: null });
      } catch (error) {
        if (!controller.signal.aborted) setState((before) => ({ ...before, error }));
      }
    };
    const timer = setTimeout(read, Math.max(0, wait));
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [name, total, width > 0, attempt, isKnown]);
  return { ...state, again: () => setAttempt(attempt + 1) };
}

/** The width of an element, as it changes. */
function useWidth(element) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

function useChart(element, found, width, onSelect, onJump) {
  const isDark = useMedia("(prefers-color-scheme: dark)"); // the canvas is drawn again then
  const latest = useRef({});
  latest.current = { onSelect, onJump };
  useEffect(() => {
    if (!found?.total || !width) return undefined;
    const end = new AbortController();
    chart(element.current, found, width, latest, end.signal).catch(() => {});
    return () => end.abort();
  }, [found, width, isDark]);
}

/** The same in words and numbers; a name is a button that filters. */
function Legend({ found, by, chosen, onChoose }) {
  return html`<ul class="legend" aria-label=${`Events by ${by}`}>
    ${found.series.map(
      ([name, counts], place) => html`<li key=${name}>
      <button type="button" class="quiet" aria-pressed=${chosen === name} disabled=${name === "other"}
        onClick=${() => onChoose(chosen === name ? "" : name)}>
        <span class=${`swatch plot-${place}`} aria-hidden="true"></span>${name} ${sum(counts).toLocaleString("en")}
      </button>
    </li>`,
    )}
  </ul>`;
}

/** The plot of what has a text: of the events that the list found, so that both say one number. */
function useFound({ items }, { by, timestamp__gte: from, timestamp__lt: to }, width) {
  return useMemo(
    () => width && condensed(histogramOf(items, { by, buckets: bucketsOf(width), from, to })),
    [items, by, from, to, width],
  );
}

/**
 * total: of the events; with another one the histogram is read again. log: the Log that has the filters.
 * onChange(members): of them. onJump(time).
 */
export default function Plot({ id, log, filters, total, onChange, onJump }) {
  const [by, setBy] = useState("kind");
  const element = useRef(null);
  const width = useWidth(element);
  const { text, timestamp__gte, timestamp__lt } = filters,
    matches = useStore(log.matches);
  const all = useHistogram(id, { by, timestamp__gte, timestamp__lt }, total, width, Boolean(text)),
    some = useFound(matches, { by, timestamp__gte, timestamp__lt }, width);
  const { error, again } = all,
    found = text ? some : all.found;
  useChart(element, found, width, (from, to) => onChange({ timestamp__gte: from, timestamp__lt: to }), onJump);
  const reset = () => onChange({ timestamp__gte: "", timestamp__lt: "" });
  const words = found?.total
    ? `${counted(found.total, "event", Boolean(text) && !matches.isWhole)}${
        text ? ` with “${text}”` : ""
      } from ${exact(found.from)} to ${exact(found.to)}`
    : text
      ? "No event in this time has the text"
      : "No events in this time";
  return html`<figure class="plot" data-testid="plot" aria-label="Events over time">
    <div class="canvas" ref=${element} role="img" aria-label=${words}></div>
    ${found && !found.total && html`<p class="muted none">${words}</p>`}
    ${error && !text && !found && html`<${Failure} error=${error} again=${again} />`}
    <figcaption>
      <label>By <select aria-label="Series of the plot" data-testid="plot-by" value=${by}
        onChange=${(event) => setBy(event.target.value)}>
        <option value="kind">Kind</option><option value="source">Source</option>
      </select></label>
      ${
        found &&
        html`<${Legend} found=${found} by=${by} chosen=${filters[by]}
        onChoose=${(name) => onChange({ [by]: name })} />`
      }
      ${
        (timestamp__gte || timestamp__lt) &&
        html`<button type="button" class="quiet" data-testid="plot-reset" onClick=${reset}>Show all times</button>`
      }
    </figcaption>
  </figure>`;
}
