// What a change of a text removes and adds: line by line, and word by word in a line that has changed.
import { useMemo } from "preact/hooks";
import { html } from "../lib/html.js";
import { diffArrays } from "../vendor/diff/array.js";
import { Code } from "./code.js";
import { Text } from "./text.js";

/**
 * Most lines that go and come in a change that is aligned. A larger one stands as all that goes, then all that comes.
 */
const MOST_EDITS = 3_000;

/** Most characters of a line, and most pieces, whose words are compared. */
const MOST_LINE = 1_000,
  MOST_WORDS = 400;

/** The part of two lines that must be the same for their words to be compared: else all of both is new. */
const ALIKE = 0.4;

/** The lines of two texts; a line end that only one of them has shows as an empty line. */
function linesOf(before, after) {
  const isWhole = [before, after].every((text) => text === "" || text.endsWith("\n"));
  return [before, after].map((text) => (text === "" ? [] : (isWhole ? text.slice(0, -1) : text).split("\n")));
}

/** Number the lines: equal lines have equal numbers, which are faster to compare. */
function numbered(lines, numbers) {
  const found = new Int32Array(lines.length);
  for (let place = 0; place < lines.length; place++) {
    let number = numbers.get(lines[place]);
    if (number === undefined) numbers.set(lines[place], (number = numbers.size));
    found[place] = number;
  }
  return found;
}

/** 1 for each number of a list that another list lacks. most: a bound of the numbers. */
function lacking(list, other, most) {
  const has = new Uint8Array(most);
  for (const number of other) has[number] = 1;
  return Uint8Array.from(list, (number) => 1 - has[number]);
}

/**
 * Align two lists of numbers below `most`: for each list, 1 where the shortest change has the number. null beyond
 * MOST_EDITS.
 *
 * A number that only one list has is always in the change. It is left out of the search, whose time grows with the
 * number of edits that the search has to find. GNU diff does the same.
 */
function aligned(old, fresh, most) {
  const [gone, come] = [lacking(old, fresh, most), lacking(fresh, old, most)];
  const places = (marks) => Array.from(marks.keys()).filter((place) => !marks[place]);
  const [left, right] = [places(gone), places(come)];
  const maxEditLength = MOST_EDITS - (old.length - left.length) - (fresh.length - right.length);
  const of = (list, some) => some.map((place) => list[place]);
  const found = maxEditLength >= 0 && diffArrays(of(old, left), of(fresh, right), { maxEditLength });
  if (!found) return null;
  let [before, after] = [0, 0];
  for (const { value, added, removed } of found) {
    const { length } = value;
    if (removed) for (const place of left.slice(before, before + length)) gone[place] = 1;
    if (added) for (const place of right.slice(after, after + length)) come[place] = 1;
    if (!added) before += length;
    if (!removed) after += length;
  }
  return { gone, come };
}

/** A change in lines: {lines: [sign, text] of each, the sign "-", "+" or " "; isAligned: false beyond MOST_EDITS}. */
export function changes(before, after) {
  const [old, fresh] = linesOf(before, after),
    numbers = new Map();
  const [first, second] = [numbered(old, numbers), numbered(fresh, numbers)];
  const found = aligned(first, second, numbers.size);
  if (!found) {
    const lines = [...old.map((line) => ["-", line]), ...fresh.map((line) => ["+", line])];
    return { lines, isAligned: false };
  }
  const lines = [];
  for (let [from, to] = [0, 0]; from < old.length || to < fresh.length; ) {
    if (found.gone[from]) lines.push(["-", old[from++]]);
    else if (found.come[to]) lines.push(["+", fresh[to++]]);
    else lines.push([" ", old[from++]]), to++;
  }
  return { lines, isAligned: true };
}

const wordsOf = (line) => line.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];

/**
 * The words that two lines differ by: for each line its pieces, [text, isChanged]; null where they have little in
 * common.
 */
export function changedWords(old, fresh) {
  if (old.length > MOST_LINE || fresh.length > MOST_LINE) return null;
  const [before, after] = [wordsOf(old), wordsOf(fresh)];
  if (before.length > MOST_WORDS || after.length > MOST_WORDS) return null;
  const found = diffArrays(before, after);
  const same = found.filter(({ added, removed }) => !added && !removed).flatMap(({ value }) => value);
  if (same.join("").trim().length < ALIKE * Math.max(old.trim().length, fresh.trim().length)) return null;
  const side = (other) =>
    found
      .filter((piece) => !piece[other])
      .map((piece) => /** @type {[string, boolean]} */ ([piece.value.join(""), piece.added || piece.removed]));
  return [side("added"), side("removed")];
}

const NAMES = { "-": "removed", "+": "added", " ": "same" };

/** Neighbours of one sign in one piece: [sign, lines]. */
function pieces(lines) {
  const found = [];
  for (const [sign, line] of lines) {
    if (found.at(-1)?.[0] === sign) found.at(-1)[1].push(line);
    else found.push([sign, [line]]);
  }
  return found;
}

/** A change, folded where it is long: text before and text after. label: what it is, for those who do not see it. */
export default function Diff({ before, after, label = "Change" }) {
  const { lines } = useMemo(() => changes(before, after), [before, after]);
  const text = lines.map(([sign, line]) => `${sign} ${line}`).join("\n");
  return html`<${Code} text=${text} label=${label} name="diff">
    ${(shown) =>
      pieces(shown.split("\n").map((line) => [line[0], line])).map(
        ([sign, some]) => html`<span class=${NAMES[sign]}><${Text} text=${some.join("\n")} /></span>`,
      )}
  <//>`;
}
