// What was printed, as numbered lines: folded at first, with a search, a link to each line, and the whole of it in a
// window of its own.
import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { save } from "../lib/api.js";
import { html } from "../lib/html.js";
import { usePanel } from "../lib/panels.js";
import { route, setQuery } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { counted } from "../lib/words.js";
import { Copy } from "./copy.js";
import { Dialog } from "./dialog.js";
import { foldsOf, found, LAST, linesOf, MOST_FOUND, MOST_OF_LINE, plainOf, rangeName, rangeOf } from "./lines.js";
import { Lines, MORE } from "./output_lines.js";
import { Sought } from "./text.js";

const NOTHING = [];

/** The search in the lines. onStep(by): to the next match, or the one before. */
function Find({ text, matches, index, onInput, onStep, onClose }) {
  const field = useRef(null);
  useEffect(() => (field.current.focus({ preventScroll: true }), field.current.select()), []);
  const onKey = (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation(); // Escape closes the search, and nothing around it
    if (event.key === "Escape") onClose();
    else onStep(event.shiftKey ? -1 : 1);
  };
  const most = matches.length === MOST_FOUND ? " or more" : "";
  const number = matches.length ? `${index + 1} of ${matches.length.toLocaleString("en")}${most}` : "No match";
  return html`<span class="find">
    <input type="text" ref=${field} data-testid="find" aria-label="Find in the output" placeholder="Find in the output"
      value=${text} onInput=${(event) => onInput(event.target.value)} onKeyDown=${onKey} />
    <span class="muted" data-testid="find-count" aria-live="polite">${text && number}</span>
    <button type="button" class="quiet" aria-label="Match before" title="Match before (Shift+Enter)"
      disabled=${!matches.length} onClick=${() => onStep(-1)}>↑</button>
    <button type="button" class="quiet" aria-label="Next match" title="Next match (Enter)" disabled=${!matches.length}
      onClick=${() => onStep(1)}>↓</button>
    <button type="button" class="quiet" aria-label="Close the search" title="Close the search (Escape)"
      onClick=${onClose}>✕</button>
  </span>`;
}

/** The search of an output, and where the person is in it. sought: the text that the page searches for. */
function useFind(lines, sought) {
  const [own, setOwn] = useState(/** @type {string | null} */ (null)),
    [index, setIndex] = useState(0);
  const query = own ?? sought;
  const matches = useMemo(() => (query ? found(lines.map(plainOf), query) : []), [lines, query]);
  const at = matches.length ? index % matches.length : 0;
  return { own, setOwn, query, matches, index: at, setIndex };
}

/** Move the focus among the numbers of lines. Returns the line that gets it, or null for another key. */
function lineOfKey(event, number) {
  const present = Number(event.target.dataset?.number);
  if (!present) return null;
  const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -present, End: number }[event.key];
  return by === undefined ? null : Math.min(number, Math.max(1, present + by)) - 1;
}

/**
 * What was printed. id: of its event, to which links to its lines lead; absent where there is none.
 *
 * isFull: it has a window of its own, and shows all. onClose(): closes that.
 */
export function Output({ text, id = "", isFull = false, onClose = undefined }) {
  const root = useRef(null);
  const lines = useMemo(() => linesOf(text), [text]),
    sought = useContext(Sought),
    [isUnwrapped, setUnwrapped] = usePanel("unwrapped");
  const find = useFind(lines, sought);
  const [isOpened, setOpened] = useState(false),
    [isWhole, setWhole] = useState(false),
    [goal, setGoal] = useState(null),
    [more, setMore] = useState(new Map());
  const { query } = useStore(route),
    named = id && query.event === id ? query.line : undefined,
    marked = useMemo(() => rangeOf(named, lines.length), [named, lines.length]);
  const isPicked = useRef(false);
  const parts = useMemo(
    () => foldsOf(lines.length, sought ? found(lines.map(plainOf), sought) : NOTHING),
    [lines, sought],
  );
  const isOpen = isOpened || isFull || parts.every(({ isShown }) => isShown);
  const isLong = lines.length > LAST || text.length > MOST_OF_LINE;
  // A person reads here, so the timeline must not follow the end of the log.
  const held = () => root.current.dispatchEvent(new CustomEvent("unfold", { bubbles: true }));
  const open = () => {
    held();
    setOpened(true);
  };
  const reach = (line, how) => {
    held();
    if (!isOpen && !parts.some(({ from, to, isShown }) => isShown && line >= from && line < to)) open();
    setGoal({ line, ...how });
  };
  useEffect(() => {
    if (marked && !isPicked.current) reach(marked[0] - 1, { block: "center", isFocus: !isFull });
    isPicked.current = false;
  }, [marked]);
  const reveal = (match) => {
    if (match.end > (more.get(match.line) ?? MOST_OF_LINE)) setMore(new Map(more).set(match.line, match.end + MORE));
    reach(match.line, { block: "center" });
  };
  const onInput = (value) => {
    find.setOwn(value);
    find.setIndex(0);
    const [first] = value ? found(lines.map(plainOf), value) : [];
    if (first) reveal(first);
  };
  const onStep = (by) => {
    const { matches, index, setIndex } = find;
    if (!matches.length) return;
    const next = (index + by + matches.length) % matches.length;
    setIndex(next);
    reveal(matches[next]);
  };
  const seek = () => {
    find.setOwn(find.query);
    if (find.matches.length) reveal(find.matches[0]);
  };
  const stopFinding = () => {
    find.setOwn(null);
    requestAnimationFrame(() => /** @type {any} */ (root.current?.querySelector(".find-open"))?.focus());
  };
  const onPick = (event, number) => {
    if (event.ctrlKey || event.metaKey) return; // the browser opens the address elsewhere
    event.preventDefault();
    const first = event.shiftKey && marked ? (number < marked[0] ? marked[1] : marked[0]) : number;
    const line = rangeName(Math.min(first, number), Math.max(first, number));
    isPicked.current = line !== named; // it is in sight: the page stays where it is
    setGoal({ line: number - 1 });
    setQuery({ ...route.get().query, event: id, line });
  };
  const onKey = (event) => {
    if (isLong && event.key === "f" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      seek();
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const line = lineOfKey(event, lines.length);
    if (event.key === "Enter" && event.shiftKey && event.target.dataset?.number) {
      event.preventDefault();
      onPick(event, Number(event.target.dataset.number));
    } else if (line !== null) {
      event.preventDefault();
      reach(line, { block: "nearest", isFocus: true });
    }
  };
  const fold = () => {
    setOpened(false);
    setGoal(null);
    requestAnimationFrame(() => root.current?.scrollIntoView({ block: "nearest" }));
  };
  const onOpen = (from) => {
    open();
    setGoal({ line: from, isFocus: true, block: from && "center" });
  };
  const saveRaw = () => save(new Blob([text], { type: "text/plain" }), `output-${id.slice(0, 8) || "so-far"}.txt`);
  const tools = html`
    <${Copy} text=${() => lines.map(plainOf).join("\n")} label="the output" />
    <button type="button" class="quiet" data-testid="raw" title="Save the text as it was printed, with its colour codes"
      onClick=${saveRaw}>Raw</button>`;
  return html`<div class="printed" ref=${root} data-testid="output" onKeyDown=${onKey}>
    <div class=${`tools${isLong ? "" : " brief on-hover"}`}>
      ${
        isLong &&
        html`<span class="muted">${counted(lines.length, "line")}</span>
      ${
        isOpened &&
        !isFull &&
        html`<button type="button" class="quiet" data-testid="fold"
        onClick=${fold}>Fold</button>`
      }
      <span class="gap"></span>
      ${
        find.own === null
          ? html`<button type="button" class="quiet find-open" data-testid="find-open"
            title="Find in the output (Ctrl+F where the focus is in it)" onClick=${seek}>Find</button>`
          : html`<${Find} text=${find.own} matches=${find.matches} index=${find.index} onInput=${onInput}
            onStep=${onStep} onClose=${stopFinding} />`
      }
      <button type="button" class="quiet" data-testid="wrap" aria-pressed=${!isUnwrapped}
        title="Break lines that are wider than the page" onClick=${() => setUnwrapped(!isUnwrapped)}>Wrap</button>`
      }
      ${tools}
      ${
        isLong &&
        !isFull &&
        html`<button type="button" class="quiet" data-testid="full-screen"
        onClick=${() => setWhole(true)}>Full screen</button>`
      }
      ${
        isFull &&
        html`<button type="button" class="quiet" data-testid="close-full" title="Close (Escape)"
        onClick=${onClose}>Close</button>`
      }
    </div>
    <${Lines} id=${id} lines=${lines} parts=${parts} isOpen=${isOpen} isWrapped=${!isUnwrapped} marked=${marked}
      find=${find} goal=${goal}
      more=${more} setMore=${(line, most) => setMore(new Map(more).set(line, most))} onOpen=${onOpen}
        onPick=${onPick} />
    ${
      isWhole &&
      html`<${Dialog} title="Output" class="full-output" onClose=${() => setWhole(false)}>
      <${Output} text=${text} id=${id} isFull onClose=${() => setWhole(false)} />
    <//>`
    }
  </div>`;
}
