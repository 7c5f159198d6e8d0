// What a change of a text removes and adds: line by line, and word by word in a line that has changed.
import { useMemo } from "preact/hooks";
import { html } from "../lib/html.js";
import { diffArrays } from "../vendor/diff/array.js";
import { Code } from "./code.js";
import { Text } from "./text.js";

/** Most lines that go and come in a change that is aligned. A larger one stands as all that goes, then all that comes. */
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

/** A number for each line, the same for equal ones: they are compared often. */
function numbered(lines, numbers) {
  return lines.map((line) => {
    if (!numbers.has(line)) numbers.set(line, numbers.size);
    return numbers.get(line);
  });
}

/** A change in lines: {lines: [sign, text] of each, the sign "-", "+" or " "; isAligned: false beyond MOST_EDITS}. */
export function changes(before, after) {
  const [old, fresh] = linesOf(before, after),
    numbers = new Map();
  const found = diffArrays(numbered(old, numbers), numbered(fresh, numbers), { maxEditLength: MOST_EDITS });
  if (!found) {
    const lines = [...old.map((line) => ["-", line]), ...fresh.map((line) => ["+", line])];
    return { lines, isAligned: false };
  }
  const texts = [...numbers.keys()];
  const lines = found.flatMap(({ value, added, removed }) => {
    const sign = added ? "+" : removed ? "-" : " ";
    return value.map((number) => [sign, texts[number]]);
  });
  return { lines, isAligned: true };
}

const wordsOf = (line) => line.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];

/** The words that two lines differ by: for each line its pieces, [text, isChanged]; null where they have little in common. */
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
