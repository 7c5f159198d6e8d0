// The lines of an output as they are drawn: numbers that are links, colours, marks, and folds. Lines that are out of
// sight have room alone, so that a hundred thousand are no more work than a screen.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { href, route } from "../lib/router.js";
import { placesOf } from "../lib/visible.js";
import { counted } from "../lib/words.js";
import { Run, useRuns } from "./ansi.js";
import { carriedOf, firstAt, lineAt, MOST_OF_LINE, plainOf, topsOf } from "./lines.js";
import { Sought, Text } from "./text.js";

/**
 * Lines up to which all are drawn; beyond, those in sight, as many rows above and below it, in steps of so many lines.
 */
const WHOLE = 400,
  OVER = 30,
  STEP = 50;

const NONE = [];

/** Characters of a long line that each press adds. */
export const MORE = 200_000;

/** The measures of a row: its height in pixels, and how many characters it has. */
function useRow(probe, isWrapped) {
  const [row, setRow] = useState({ height: 0, columns: 0 });
  useLayoutEffect(() => {
    const measure = () => {
      const { width } = probe.current.firstElementChild.getBoundingClientRect(),
        { width: room, height } = probe.current.getBoundingClientRect();
      if (!height) return; // not shown
      const columns = isWrapped && width ? Math.max(1, Math.floor((room * 10) / width)) : 0;
      setRow((before) => (before.height === height && before.columns === columns ? before : { height, columns }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(probe.current);
    return () => observer.disconnect();
  }, [isWrapped]);
  return row;
}

/** The nearest ancestor of an element that scrolls. */
function scrollerOf(element) {
  let around = element.parentElement;
  while (around && !/auto|scroll/.test(getComputedStyle(around).overflowY)) around = around.parentElement;
  return around ?? document.scrollingElement;
}

/** Lines that are drawn, of all: [from, to, pixels before, pixels after]. goal: where the person is led to. */
function useWindow(box, lines, row, goal) {
  const [measured, setMeasured] = useState(new Map());
  useEffect(() => setMeasured((before) => (before.size ? new Map() : before)), [row.columns, lines]);
  const tops = useMemo(() => topsOf(lines, row.columns, measured), [lines, row.columns, measured]);
  const isAll = lines.length <= WHOLE;
  const [range, setRange] = useState([0, 2 * STEP]);
  const led = useRef(null);
  const step = (first, last) => {
    const next = [Math.floor(first / STEP) * STEP, Math.min(lines.length, Math.ceil((last + 1) / STEP) * STEP)];
    setRange((before) => (before[0] === next[0] && before[1] === next[1] ? before : next));
  };
  const look = () => {
    if (isAll || !row.height || !box.current || led.current !== goal) return;
    const { top } = box.current.getBoundingClientRect();
    step(
      lineAt(tops, -top / row.height - OVER),
      lineAt(tops, Math.min(tops.at(-1), (innerHeight - top) / row.height + OVER)),
    );
  };
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    const onScroll = () => latest.current();
    addEventListener("scroll", onScroll, { capture: true, passive: true });
    addEventListener("resize", onScroll);
    return () => {
      removeEventListener("scroll", onScroll, { capture: true });
      removeEventListener("resize", onScroll);
    };
  }, []);
  // A line may be taller than its characters say: what is drawn is measured, and what stands in sight keeps its place.
  useLayoutEffect(() => {
    if (isAll || !row.columns || !row.height) return;
    let above = 0,
      changed = null;
    for (const element of box.current.querySelectorAll(":scope > .line")) {
      const place = Number(element.dataset.line) - 1,
        { top, height } = element.getBoundingClientRect(),
        rows = Math.max(1, Math.round(height / row.height)),
        before = tops[place + 1] - tops[place];
      if (rows === before) continue;
      changed ??= new Map(measured);
      changed.set(place, rows);
      if (top < 0) above += (rows - before) * row.height;
    }
    if (!changed) return;
    setMeasured(changed);
    if (above) scrollerOf(box.current).scrollTop += above;
  });
  useLayoutEffect(() => latest.current(), [tops, row.height]);
  useEffect(() => {
    if (!goal || led.current === goal) return;
    const line = box.current.querySelector(`:scope > [data-line="${goal.line + 1}"]`);
    if (!line) return step(Math.max(0, goal.line - STEP), goal.line + STEP);
    led.current = goal;
    if (goal.block)
      (line.querySelector("mark.current") ?? line).scrollIntoView({ block: goal.block, inline: "nearest" });
    if (goal.isFocus) line.querySelector(".number")?.focus({ preventScroll: true });
    latest.current();
  }, [goal, range, lines, isAll]);
  if (isAll) return [0, lines.length, 0, 0];
  const [from, to] = [Math.min(range[0], lines.length), Math.min(range[1], lines.length)];
  return [from, to, tops[from] * row.height, (tops[lines.length] - tops[to]) * row.height];
}

/**
 * A run of text in pieces, of which some are marked. at: where it begins in its line; places: [start, end, isCurrent]
 * of the line.
 */
function pieces(text, at, places) {
  const made = [];
  let done = 0;
  for (const [start, end, isCurrent] of places) {
    const from = Math.max(0, start - at),
      to = Math.min(text.length, end - at);
    if (to <= from) continue;
    if (from > done) made.push(html`<${Text} prose text=${text.slice(done, from)} />`);
    made.push(html`<mark class=${isCurrent ? "current" : ""}><${Text} prose text=${text.slice(from, to)} /></mark>`);
    done = to;
  }
  if (done < text.length) made.push(html`<${Text} prose text=${text.slice(done)} />`);
  return made;
}

/**
 * The text of a line: its colours, its marks, and no more of it than `most` characters. current: the place of the match
 * that the person is at, or -1.
 */
function OutputText({ line, carried, runs, query, current, most }) {
  const all = runs && (carried || line.includes("\u001b")) ? runs(carried + line) : [{ text: plainOf(line) }];
  const whole = all.map(({ text }) => text).join("");
  const places = query ? placesOf(whole, query).map(([start, end], place) => [start, end, place === current]) : [];
  let at = 0;
  return all.map((run) => {
    const begin = at,
      text = run.text.slice(0, Math.max(0, most - begin));
    at += run.text.length;
    return text && html`<${Run} run=${run}>${pieces(text, begin, places)}<//>`;
  });
}

/** A line with its number, which is a link to it. address: of the line; null where there is none. */
function OutputLine({ place, line, address, isMarked, isStop, hasNumber, most, onMore, onPick, ...said }) {
  const number = place + 1,
    left = plainOf(line).length - most;
  return html`<div class=${`line${isMarked ? " marked" : ""}`} data-line=${number}>
    ${
      hasNumber &&
      (address
        ? html`<a class="number" href=${address} tabindex=${isStop ? 0 : -1} data-number=${number}
          aria-label=${`Line ${number}`} onClick=${(event) => onPick(event, number)}></a>`
        : html`<span class="number" data-number=${number} aria-hidden="true"></span>`)
    }
    <span class="text"><${OutputText} line=${line} most=${most} ...${said} />${line === "" && " "}${
      left > 0 &&
      html`<button type="button" class="quiet" data-testid="line-more"
        onClick=${onMore}>Show more (${left.toLocaleString("en")} characters)</button>`
    }</span>
  </div>`;
}

/** A hidden part of folded lines. */
function Gap({ from, to, number, onOpen }) {
  const words = `${from === 0 ? "earlier " : to === number ? "later " : ""}line`;
  return html`<button type="button" class="quiet gap" data-testid="show-earlier" onClick=${() => onOpen(from)}>
    ${counted(to - from, words)}</button>`;
}

/** The lines, those of the folds or all. */
export function Lines({ id, lines, parts, isOpen, isWrapped, marked, find, goal, more, setMore, onOpen, onPick }) {
  const box = useRef(null),
    probe = useRef(null);
  const text = useMemo(() => carriedOf(lines), [lines]),
    runs = useRuns(useMemo(() => lines.some((line) => line.includes("\u001b")), [lines]));
  const row = useRow(probe, isWrapped);
  const [from, to, before, after] = useWindow(box, isOpen ? lines : NONE, row, isOpen ? goal : null);
  useEffect(() => {
    if (isOpen || !goal) return;
    const line = box.current.querySelector(`:scope > [data-line="${goal.line + 1}"]`);
    if (goal.block)
      (line?.querySelector("mark.current") ?? line)?.scrollIntoView({ block: goal.block, inline: "nearest" });
    if (goal.isFocus) line?.querySelector(".number")?.focus({ preventScroll: true });
  }, [goal]);
  const { query, matches, index, own } = find,
    at = own === null ? null : matches[index];
  const first = isOpen ? from : parts.find(({ isShown }) => isShown).from,
    wanted = goal?.line ?? (marked ? marked[0] - 1 : first),
    isDrawn = isOpen
      ? wanted >= from && wanted < to
      : parts.some((part) => part.isShown && wanted >= part.from && wanted < part.to);
  const stop = isDrawn ? wanted : first; // the one number that Tab reaches
  const { id: conversation, query: address } = route.get();
  const draw = (place) => {
    const number = place + 1,
      isCurrent = at?.line === place;
    return html`<${OutputLine} key=${place} place=${place} line=${lines[place]} carried=${text[place]} runs=${runs}
      query=${query}
      current=${isCurrent ? index - firstAt(matches, place) : -1} most=${more.get(place) ?? MOST_OF_LINE}
        isStop=${place === stop}
      hasNumber=${lines.length > 1} isMarked=${marked && number >= marked[0] && number <= marked[1]} onPick=${onPick}
      address=${id && href("conversations", conversation, { ...address, event: id, line: number })}
      onMore=${() => setMore(place, (more.get(place) ?? MOST_OF_LINE) + MORE)} />`;
  };
  const some = (first, end) => Array.from({ length: end - first }, (_, offset) => draw(first + offset));
  const drawn = isOpen
    ? [
        before > 0 && html`<div key="before" class="room" style=${{ height: `${before}px` }}></div>`,
        ...some(from, to),
        after > 0 && html`<div key="after" class="room" style=${{ height: `${after}px` }}></div>`,
      ]
    : parts.flatMap((part) =>
        part.isShown
          ? some(part.from, part.to)
          : [html`<${Gap} key=${`gap ${part.from}`} ...${part} number=${lines.length} onOpen=${onOpen} />`],
      );
  const digits = { "--digits": `${String(lines.length).length}ch` };
  return html`<div class=${`terminal printout${isWrapped ? " wrapped" : ""}${lines.length > 1 ? " numbered" : ""}`}
    style=${digits} ref=${box} data-testid="lines" role="figure" aria-label="Output"
    tabindex=${lines.length > 1 ? undefined : 0}>
    <div class="probe" aria-hidden="true"><span class="text" ref=${probe}><span>0000000000</span></span></div>
    <${Sought.Provider} value="">${drawn}<//>
  </div>`;
}
