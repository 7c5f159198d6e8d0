// The lines of a changed file, in one column or two. One stop of Tab: arrow keys move among the lines, Enter comments.
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useGrowing } from "../lib/growing.js";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import { counted } from "../lib/words.js";
import { isTooLong, NotHighlighted, Pieces, piecesOf, useTokens } from "../parts/highlight.js";
import { key, placeOf } from "./comments.js";
import { inColumns, opening, rowsOf } from "./review.js";

/** Rows that are shown, and more with each press; characters of a line. */
const MOST_ROWS = 600,
  MOST_LINE = 2_000;

/** Rows that are drawn in a frame: a window shows about as many. And rows that get their colours in one. */
const DRAWN = 40,
  LIT = 40;

const CLASSES = { "-": "removed", "+": "added", " ": "same" };

function Comment({ comment, set, drop }) {
  const field = useRef(null);
  useEffect(() => void (comment.comment || field.current.focus()), []);
  const place = placeOf(comment);
  return html`<div class="comment">
    <textarea ref=${field} rows="2" data-testid="comment" aria-label=${`Comment on ${place}`}
      placeholder="What should the agent change here?" value=${comment.comment}
      onInput=${(event) => set(event.target.value)}></textarea>
    ${comment.above && html`<span class="muted">${place}</span>`}
    <button type="button" class="quiet" data-testid="drop-comment" onClick=${drop}>Remove</button>
  </div>`;
}

function LineText({ text, words, tokens }) {
  const pieces = piecesOf(text.slice(0, MOST_LINE), tokens, words);
  return html`<${Pieces} pieces=${pieces} />${text.length > MOST_LINE && " …"}`;
}

/**
 * A line's numbers and text; on the side of a column the number of that side alone. It is drawn again only when it is
 * another one, as there are hundreds. act: what one may do with a line, the same object each time.
 */
class Cell extends Component {
  shouldComponentUpdate(next) {
    return ["row", "side", "isChosen", "isCommented", "isStop", "tokens"].some(
      (name) => next[name] !== this.props[name],
    );
  }

  render({ row, side, isChosen, isCommented, isStop, tokens, act }) {
    if (!row) return html`<div class="line none"></div>`;
    const number = row.sign === "-" ? row.old : row.fresh,
      isComment = act && (side !== "old" || row.sign === "-");
    const what = `${{ "-": "Removed line", "+": "Added line", " ": "Line" }[row.sign]} ${number}`;
    const classes = `line ${CLASSES[row.sign]} ${isChosen ? "chosen" : ""} ${isCommented ? "commented" : ""}`;
    return html`<div class=${classes} role="group" aria-label=${what} data-old=${row.old} data-fresh=${row.fresh}
      data-sign=${row.sign}
        tabindex=${isComment ? (isStop ? 0 : -1) : undefined} onFocus=${isComment && (() => act.setStop(row))}>
      ${side !== "fresh" && html`<span class="number">${row.sign === "+" ? "" : row.old}</span>`}
      ${side !== "old" && html`<span class="number">${row.sign === "-" ? "" : row.fresh}</span>`}
      ${
        isComment &&
        html`<button type="button" class="add" tabindex="-1" data-testid="comment-line"
          aria-label=${`Comment on ${what.toLowerCase()}`} title="Comment. Shift, or drag, for several lines"
          onPointerDown=${() => act.begin(row)} onClick=${(event) => act.comment(row, event.shiftKey)}>+</button>`
      }
      <code><span class="sign">${row.sign}</span><${LineText} text=${row.text} words=${row.words}
        tokens=${tokens} /></code>
    </div>`;
  }
}

/** file: as `review_files.js` reads it, a text. isSplit: two columns. comments: all of the conversation, by `key`. */
export function ChangedLines({ path, file, isSplit, comments, setComment }) {
  const { lines, isAligned } = file;
  const [opened, setOpened] = useState([]),
    [most, setMost] = useState(MOST_ROWS);
  const [stop, setStop] = useState(null),
    [anchor, setAnchor] = useState(null),
    [over, setOver] = useState(null);
  const element = useRef(null);
  const rows = useMemo(() => rowsOf(lines, opened), [lines, opened]);
  const shown = useMemo(() => (isSplit ? inColumns(rows) : rows), [rows, isSplit]);
  const before = useTokens(file.before, path),
    after = useTokens(file.after, path);
  const drawn = useGrowing(Math.min(most, shown.length), DRAWN),
    lit = useGrowing(before || after ? drawn : 0, LIT);
  const acts = useRef(null);
  const act = useMemo(
    () => may("write") && { setStop, begin: setAnchor, comment: (row, isMore) => acts.current.comment(row, isMore) },
    [],
  );
  const first = useMemo(() => rows.find(({ sign }) => sign === "+" || sign === "-"), [rows]);
  if (!first)
    return html`<p class="muted">No line differs: what changed is in the ends of lines, or in the rights of
      the file.</p>`;

  const present = rows.includes(stop) ? stop : first;
  /** The rows from one to another, whichever comes first, without gaps. */
  const between = (one, other) => {
    const places = [rows.indexOf(one), rows.indexOf(other)].sort((a, b) => a - b);
    return rows.slice(places[0], places[1] + 1).filter(({ sign }) => sign);
  };
  const write = (from, to) => {
    const some = between(from, to),
      { words: _, ...last } = some.at(-1);
    setAnchor(null);
    setOver(null);
    const name = key(path, last);
    if (comments[name] !== undefined) return;
    const above = some.slice(0, -1).map(({ sign, text, old, fresh }) => ({ sign, text, old, fresh }));
    setComment(name, { path, ...last, comment: "", ...(above.length && { above }) });
  };
  acts.current = { comment: (row, isMore) => write(isMore ? present : row, row) };
  const chosen = anchor && over ? new Set(between(anchor, over)) : new Set();
  const commentOf = (row) => comments[key(path, row)];
  const rowOf = (target) => {
    const line = target.closest?.("[data-sign]"),
      { sign, old, fresh } = line?.dataset ?? {};
    return line && rows.find((row) => row.sign === sign && row.old === Number(old) && row.fresh === Number(fresh));
  };
  const onKeyDown = (event) => {
    if (!act || !event.target.matches(".line")) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter") {
      event.preventDefault();
      write(anchor ?? present, present);
    } else if (step) {
      const all = [...element.current.querySelectorAll(".line[tabindex]")],
        next = all[all.indexOf(event.target) + step];
      if (!next) return;
      event.preventDefault();
      setAnchor(event.shiftKey ? (anchor ?? present) : null);
      setOver(event.shiftKey ? rowOf(next) : null);
      next.focus();
    }
  };
  const onPointerUp = (event) => {
    const row = anchor && rowOf(event.target);
    if (row && row !== anchor) write(anchor, row);
    else setAnchor(null);
  };
  const tokensOf = (row) => (row?.sign === "-" ? before?.[row.old - 1] : after?.[row?.fresh - 1]);
  const cell = (row, side, index) =>
    html`<${Cell} row=${row} side=${side} isChosen=${chosen.has(row)} isCommented=${Boolean(row && commentOf(row))}
      isStop=${row === present}
      tokens=${index < lit ? tokensOf(row) : undefined} act=${act} />`;
  const commented = (row) => {
    const comment = row?.sign && commentOf(row);
    if (!comment) return null;
    const name = key(path, row);
    return html`<${Comment} key=${name} comment=${comment}
      set=${(text) => setComment(name, { ...comment, comment: text })} drop=${() => setComment(name)} />`;
  };
  const shownRow = (row, index) => {
    if (row.gap)
      return html`<p key=${index} class="gap"><button type="button" class="quiet" data-testid="open-gap"
        onClick=${() => setOpened([...opened, opening(row)])}>Show ${counted(row.gap, "unchanged line")}</button></p>`;
    if (!isSplit) return [cell(row, undefined, index), commented(row)];
    const { left, right } = row;
    return html`<div key=${index} class="pair">${cell(left, "old", index)}${cell(right, "fresh", index)}
      ${left !== right && commented(left)}${commented(right)}</div>`;
  };
  return html`<div ref=${element} class=${`lines ${isSplit ? "split" : ""} ${anchor && over ? "choosing" : ""}`}
    onKeyDown=${onKeyDown}
      onPointerUp=${onPointerUp} onPointerOver=${(event) => anchor && event.buttons && setOver(rowOf(event.target))}>
    ${!isAligned && html`<p class="medium">Too large to align: the old text, then the new one.</p>`}
    ${[file.before, file.after].some((text) => text && isTooLong(text, path)) && html`<${NotHighlighted} />`}
    ${shown.slice(0, drawn).map(shownRow)}
    ${
      shown.length > most &&
      html`<p class="gap"><button type="button" class="quiet"
      onClick=${() => setMost(most + MOST_ROWS)}>Show more (${counted(shown.length - most, "line")})</button></p>`
    }
  </div>`;
}
