// What a changed file is read as: rows with gaps that open, two columns, and a patch. Plain functions, without a page.
import { changedWords, changes } from "../parts/diff.js";

/** Equal lines that are shown around a change, and those that one press opens of a gap. */
const AROUND = 3,
  OPENED = 100;

/** How Git says that a last line has no end; and the mark of such a line here, which no text has. */
const NO_END = "\\ No newline at end of file",
  ENDLESS = "\0";

/**
 * The lines of a change, each {sign, text, old, fresh}: its number before and after. A line that was changed has
 * `words`, its pieces as `changedWords` has them. isAligned: as `changes` says.
 */
export function linesOf(before, after) {
  let old = 0,
    fresh = 0;
  const { lines: found, isAligned } = changes(before, after);
  const lines = found.map(([sign, text]) => {
    old += Number(sign !== "+");
    fresh += Number(sign !== "-");
    return { sign, text, old, fresh };
  });
  if (isAligned) markWords(lines);
  return { lines, isAligned };
}

/** Compare the words of lines that go with those of the lines that come in their place, one by one. */
function markWords(lines) {
  for (let start = 0; start < lines.length; start++) {
    if (lines[start].sign !== "-") continue;
    let middle = start;
    while (lines[middle]?.sign === "-") middle++;
    let end = middle;
    while (lines[end]?.sign === "+") end++;
    for (let place = 0; place < Math.min(middle - start, end - middle); place++) {
      const [removed, added] = [lines[start + place], lines[middle + place]];
      [removed.words, added.words] = changedWords(removed.text, added.text) ?? [];
    }
    start = end - 1;
  }
}

/** How many lines go and come: {added, removed}. */
export function countsOf(lines) {
  const number = (sign) => lines.filter((line) => line.sign === sign).length;
  return { added: number("+"), removed: number("-") };
}

/**
 * The rows that are shown: lines near a change or in an opened range, and {gap, from} for the others: their number, and
 * the place of the first. opened: [from, to] of ranges of lines.
 */
export function rowsOf(lines, opened) {
  const isNear = new Uint8Array(lines.length);
  lines.forEach(({ sign }, index) => {
    if (sign !== " ") isNear.fill(1, Math.max(0, index - AROUND), index + AROUND + 1);
  });
  for (const [from, to] of opened) isNear.fill(1, from, to);
  const rows = [];
  lines.forEach((line, index) => {
    if (isNear[index]) rows.push(line);
    else if (rows.at(-1)?.gap) rows.at(-1).gap += 1;
    else rows.push({ gap: 1, from: index });
  });
  return rows;
}

/** What one press opens of a gap: [from, to]. */
export const opening = ({ gap, from }) => [from, from + Math.min(gap, OPENED)];

/** Rows in two columns: {left, right}, the lines that go beside those that come in their place; a gap stays one row. */
export function inColumns(rows) {
  const pairs = [];
  let removed = [];
  let added = [];
  const end = () => {
    for (let place = 0; place < Math.max(removed.length, added.length); place++)
      pairs.push({ left: removed[place], right: added[place] });
    [removed, added] = [[], []];
  };
  for (const row of rows) {
    if (row.sign === "-") removed.push(row);
    else if (row.sign === "+") added.push(row);
    else {
      end();
      pairs.push(row.gap ? row : { left: row, right: row });
    }
  }
  end();
  return pairs;
}

/** A path in a patch: Git quotes one with other characters than these. */
const named = (side, path) =>
  /^[\w./ @+,=~^{}()[\]#%&!$'*;:?<>|-]+$/.test(path) ? `${side}/${path}` : quoted(`${side}/${path}`);

const ESCAPES = { 34: '\\"', 92: "\\\\", 9: "\\t", 10: "\\n", 13: "\\r" };

function quoted(path) {
  const bytes = [...new TextEncoder().encode(path)];
  const shown = bytes.map(
    (byte) =>
      ESCAPES[byte] ?? (byte < 32 || byte > 126 ? `\\${byte.toString(8).padStart(3, "0")}` : String.fromCharCode(byte)),
  );
  return `"${shown.join("")}"`;
}

/**
 * A changed file as `git apply` takes it; "" where no line differs. before, after: null of a file that was not there,
 * or is not. Limitation: the server does not say what a file may be executed by: a new one is not.
 */
export function patchOf(path, before, after) {
  const [from, to] = [named("a", path), named("b", path)];
  const head = [`diff --git ${from} ${to}`];
  if (before === null) head.push("new file mode 100644");
  if (after === null) head.push("deleted file mode 100644");
  const hunks = hunksOf(before ?? "", after ?? "");
  if (!hunks.length && before !== null && after !== null) return "";
  if (hunks.length)
    head.push(`--- ${before === null ? "/dev/null" : from}`, `+++ ${after === null ? "/dev/null" : to}`);
  return `${[...head, ...hunks].join("\n")}\n`;
}

/** The hunks of a patch, in lines. A last line without an end is another line than the same one with it. */
function hunksOf(before, after) {
  const ended = (text) => (text === "" || text.endsWith("\n") ? text : `${text}${ENDLESS}\n`);
  const hunks = [];
  let hunk = [];
  const end = () => {
    if (hunk.length) hunks.push(headOf(hunk), ...hunk.flatMap(written));
    hunk = [];
  };
  for (const row of rowsOf(linesOf(ended(before), ended(after)).lines, [])) row.gap ? end() : hunk.push(row);
  end();
  return hunks;
}

function headOf(hunk) {
  const range = (sign, side) => {
    const lines = hunk.filter((row) => row.sign !== sign);
    return `${lines.length ? lines[0][side] : hunk[0][side]},${lines.length}`;
  };
  return `@@ -${range("+", "old")} +${range("-", "fresh")} @@`;
}

const written = ({ sign, text }) => (text.endsWith(ENDLESS) ? [sign + text.slice(0, -1), NO_END] : [sign + text]);
