// The timeline: the rows of the window, which follow the end of the log until the person scrolls away from it.
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { route } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { day } from "../lib/words.js";
import { Empty, Failure, tell } from "../parts/notices.js";
import { Markdown } from "../parts/markdown.js";
import { Entry } from "./entry.js";
import { EventRow } from "./event.js";
import { Returned } from "./returned.js";
import { changesMode, kindOf, lastOf, leftBehind, rowsOf, talkOf } from "./rows.js";
import { Turn } from "./turn.js";

/** Pixels from the end at which the person is "at the end"; from an edge at which the next page is fetched. */
const AT_END = 48,
  NEAR = 1_600;

/** The events that returns left behind, of a filtered window: not known. */
const NOTHING = new Map();

/** Events that are fetched at once, so that a short log is shown whole. */
const AT_ONCE = 150;

/** What scrolls the rows: the timeline, or the page where the style gives the timeline its whole height. */
const scrollerOf = (box) => (getComputedStyle(box).overflowY === "visible" ? document.scrollingElement : box);

/** The first prompt, where the page scrolls: it then is the end, as others and the composer stand below it. */
const waitingIn = (scroller) =>
  scroller === document.scrollingElement ? document.querySelector(".waits-here article") : null;

/** Whether the end is in view. */
function isAtEnd(scroller) {
  const waiting = waitingIn(scroller);
  return (
    scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < AT_END ||
    (waiting !== null && Math.abs(waiting.getBoundingClientRect().top) < AT_END)
  );
}

/** The first row that is in view, and where it stands. */
function anchorOf(box) {
  const top = Math.max(0, box.getBoundingClientRect().top);
  const rows = box.querySelectorAll("li.event");
  let low = 0,
    high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].getBoundingClientRect().bottom > top) high = middle;
    else low = middle + 1;
  }
  return rows.length ? { row: rows[low], top: rows[low].getBoundingClientRect().top } : null;
}

/** Move the focus to the next or the previous row. Without a focus, start at the first row in view. */
function step(box, by) {
  const rows = [...box.querySelectorAll("li.event")],
    at = rows.indexOf(focusedIn(box));
  (at < 0 ? anchorOf(box)?.row : rows[at + by])?.focus();
}

/** @returns {HTMLElement | null} */
function focusedIn(box) {
  return box.contains(document.activeElement) ? document.activeElement.closest("li.event") : null;
}

function copyLink(row) {
  row?.querySelector(".link")?.click();
}

/** Fetches what comes next where the person is near an edge. box: what scrolls. */
function extend(box, log) {
  const { events, loading, error, older, newer } = log.state.get();
  if (loading || error) return;
  const isNear = box.scrollTop < NEAR;
  if (older && ((isNear && !log.isFollowed) || ((isNear || events.length < AT_ONCE) && log.hasRoom))) log.older();
  else if (newer && box.scrollHeight - box.scrollTop - box.clientHeight < NEAR) log.newer();
}

/**
 * Where an event of the address is: its first place of what is sought, else its row; null where its output leads to a
 * line by itself.
 */
function placeOf(box, id) {
  const event = box.querySelector(`[data-testid="event-${CSS.escape(id)}"]`);
  if (route.get().query.line && event?.querySelector(".printed")) return null;
  return event?.querySelector("mark") ?? box.querySelector("li.focus");
}

/** Keep the rows in view in their place while rows come and go, or keep the end in view. */
function useSteadyScroll(log, state) {
  const box = useRef(null),
    anchor = useRef(null),
    focused = useRef(null);
  const toEnd = () => {
    const scroller = box.current && scrollerOf(box.current),
      waiting = scroller && waitingIn(scroller);
    if (waiting) waiting.scrollIntoView({ block: "start" });
    else if (scroller) scroller.scrollTop = scroller.scrollHeight;
  };
  anchor.current = box.current && anchorOf(box.current);
  useLayoutEffect(() => {
    const element = box.current,
      { row, top } = anchor.current ?? {};
    if (state.focus && focused.current !== state.focus) {
      focused.current = state.focus;
      placeOf(element, state.focus)?.scrollIntoView({ block: "center" });
      log.isFollowed = false;
    } else if (log.isFollowed) toEnd();
    else if (row?.isConnected) scrollerOf(element).scrollTop += row.getBoundingClientRect().top - top;
    extend(scrollerOf(element), log);
  }, [state]);
  useEffect(() => {
    const observer = new ResizeObserver(() => log.isFollowed && toEnd());
    observer.observe(box.current);
    observer.observe(box.current.firstElementChild);
    const onUnfold = () => (log.isFollowed = false); // the person reads what they have opened
    box.current.addEventListener("unfold", onUnfold);
    return () => {
      observer.disconnect();
      box.current?.removeEventListener("unfold", onUnfold);
    };
  }, [log]);
  const onScroll = () => {
    if (!box.current) return; // a last event of a timeline that is gone
    const scroller = scrollerOf(box.current),
      { newer, unseen, loading } = log.state.get();
    log.isFollowed = !newer && isAtEnd(scroller);
    if (log.isFollowed && unseen) log.state.set({ ...log.state.get(), unseen: 0 });
    if (!loading) extend(scroller, log);
  };
  useEffect(() => {
    // In a low window the page scrolls in the place of the box: what waits stays in sight when a phone is turned.
    const onResize = () => box.current && (log.isFollowed || waitingIn(scrollerOf(box.current))) && toEnd();
    const onPageScroll = () => box.current && scrollerOf(box.current) !== box.current && onScroll();
    addEventListener("scroll", onPageScroll);
    addEventListener("resize", onResize);
    return () => {
      removeEventListener("scroll", onPageScroll);
      removeEventListener("resize", onResize);
    };
  }, [log]);
  return { box, onScroll };
}

/** The line before the first row. Its height never changes. */
function Begin({ state, log }) {
  if (state.error?.of === "older") return html`<${Failure} error=${state.error} again=${() => log.again()} />`;
  if (!state.events.length) return null;
  return html`<p class="edge muted">${state.older ? "Earlier events are loading" : "The beginning"}</p>`;
}

function TimelineEnd({ state, log }) {
  if (state.error && state.error.of !== "older")
    return html`<${Failure} error=${state.error} again=${() => log.again()} />`;
  return state.newer ? html`<p class="edge muted">Later events are loading</p>` : null;
}

function Nothing({ isFiltered, isOutside, onReset }) {
  const hint = isOutside ? "What its agent tells appears here." : "Send a message below to start the agent.";
  if (!isFiltered) return html`<${Empty} title="Nothing has happened yet">${hint}<//>`;
  return html`<${Empty} title="No matching events"><button type="button"
    onClick=${onReset}>Show all events</button><//>`;
}

/** The text that the agent is writing now. */
function Writing({ text }) {
  return html`<div class="event message writing">
    <p class="head"><span class="label">Agent is writing</span></p>
    <${Markdown} text=${text} />
  </div>`;
}

function isIn({ event, results }, id) {
  return id !== null && (event.id === id || results.some((result) => result.id === id));
}

/**
 * Rows with the day above the first one, and wherever another day begins. timeOf(row): of a row; null where it has
 * none.
 */
function withDays(rows, timeOf, draw) {
  let last = "";
  return rows.flatMap((row) => {
    const at = timeOf(row),
      present = at ? day(at) : last,
      isNew = present !== last;
    last = present;
    const drawn = draw(row);
    return isNew ? [html`<li class="day" key=${present}><time datetime=${at}>${present}</time></li>`, drawn] : [drawn];
  });
}

/**
 * The rows of the wire, or of the talk. isRunning: the agent works, so that a last action without a result is under
 * way.
 */
function Rows({ id, rows, left, isWire, isRaw, state, waiting, isRunning, isOutside, output, decisions, forkOf }) {
  const talk = useRef([]);
  const focus = ({ event, results }) => isIn({ event, results }, state.focus);
  const returned = ({ event }) =>
    left.has(event.id) &&
    html`<${Returned} key=${event.id} id=${id} event=${event} left=${left.get(event.id)} focus=${state.focus} />`;
  if (isWire)
    return withDays(
      rows,
      ({ event }) => event.timestamp,
      (row) =>
        returned(row) ||
        html`<${EventRow} key=${row.event.id} row=${row} isTalk=${!isRaw} isFocus=${focus(row)}
          waits=${waiting.has(row.event.id)} onFork=${forkOf(row)} />`,
    );
  talk.current = talkOf(rows, state.older, talk.current);
  const last = isRunning && !state.newer ? talk.current.findLast(({ row }) => row)?.row : null;
  return withDays(
    talk.current,
    ({ row }) => row?.event.timestamp,
    ({ row, line }) =>
      line
        ? html`<${Turn} key=${`turn ${line.id}`} line=${line}
          focus=${line.events.some(({ id }) => id === state.focus) ? state.focus : null} forkOf=${forkOf} />`
        : returned(row) ||
          html`<${Entry} key=${row.event.id} row=${row} isFocus=${focus(row)} waits=${waiting.has(row.event.id)}
        isOutside=${isOutside} isRunning=${row === last && !row.results.length && !waiting.has(row.event.id)}
          output=${output} decisions=${decisions} onFork=${forkOf(row)} />`,
  );
}

/**
 * id: of the conversation. log: a Log. waiting: ids of the actions that wait. writing: what the agent is writing now;
 * output: a store of what its command prints; decisions: its Decisions. isOutside: its agent runs outside of sandboxes.
 * isWire: every event has a row of its own; isRaw: with its texts as they were sent. forks: of useForks. onFork(event):
 * undefined where no fork is offered; without an event the fork is of all.
 */
export function Timeline({
  id,
  log,
  waiting,
  writing,
  output,
  decisions,
  isWire,
  isRaw,
  isRunning,
  isOutside,
  isFiltered,
  onReset,
  forks,
  onFork,
}) {
  const state = useStore(log.state);
  useEffect(() => {
    const isDecided = (event) => kindOf(event) === "ActionEvent" || changesMode(event);
    decisions.want(state.events.filter(isDecided).map(({ id }) => id));
  }, [state.events]);
  const rows = useRef([]);
  const { box, onScroll } = useSteadyScroll(log, state);
  const left = isFiltered ? NOTHING : leftBehind(state.events),
    gone = new Set([...left.values()].flat());
  rows.current = rowsOf(gone.size ? state.events.filter((event) => !gone.has(event)) : state.events, rows.current);
  const toEnd = () => {
    log.isFollowed = true;
    if (state.newer) log.newest();
    else log.state.set({ ...state, unseen: 0, focus: null });
  };
  const forkRow = useMemo(() => onFork && ((row, isBack = false) => onFork(lastOf(row), isBack)), [onFork]);
  const forkOf = useMemo(() => (row) => (forks.at(lastOf(row)) ? forkRow : undefined), [forks.at, forkRow]);
  const fork = () => {
    const name = focusedIn(box.current)?.dataset.testid;
    const row = name && rows.current.find(({ event }) => name === `event-${event.id}`);
    if (row ? !forks.at(lastOf(row)) : !forks.atEnd) tell("The files were not recorded here, so no fork begins here.");
    else if (row) forkRow(row, false);
    else onFork();
  };
  useShortcuts({
    J: { label: "Choose the next event", run: () => step(box.current, 1) },
    K: { label: "Choose the event before", run: () => step(box.current, -1) },
    ...(onFork && { f: { label: "Fork the conversation, from the chosen event where one is", run: fork } }),
    l: { label: "Copy the link to the chosen event", run: () => copyLink(focusedIn(box.current)) },
    G: { label: "Go to the newest event", run: toEnd },
  });
  const isEmpty = !state.events.length && !state.loading && !state.error;
  return html`<div class="timeline-frame">
    <section class="timeline" data-testid="timeline" ref=${box} onScroll=${onScroll} tabindex="0" aria-label="Timeline"
      aria-busy=${state.loading === "newest"}>
      <div>
        <${Begin} state=${state} log=${log} />
        ${isEmpty && html`<${Nothing} isFiltered=${isFiltered} isOutside=${isOutside} onReset=${onReset} />`}
        <ol>
          <${Rows} id=${id} left=${left} rows=${rows.current} isWire=${isWire} isRaw=${isRaw} state=${state}
            waiting=${waiting} isRunning=${isRunning} isOutside=${isOutside} output=${output} decisions=${decisions}
            forkOf=${forkOf} />
        </ol>
        ${writing && !state.newer && html`<${Writing} text=${writing} />`}
        <${TimelineEnd} state=${state} log=${log} />
      </div>
    </section>
    <div class="to-end" aria-live="polite">
      ${
        (state.unseen > 0 || state.newer) &&
        html`<button type="button" onClick=${toEnd}>
        ${
          state.unseen
            ? `${state.unseen.toLocaleString("en")} new ${state.unseen === 1 ? "event" : "events"}`
            : "To the newest event"
        }
      </button>`
      }
    </div>
  </div>`;
}
