// The lines of what was printed: which are shown while they are folded, what is found in them, how tall they are, and
// which of them an address names.
import { placesOf } from "../lib/visible.js";

/** Lines at the end of an output that are shown while it is folded. */
export const LAST = 14;

/** Characters of a line that are shown before its own "show more". */
export const MOST_OF_LINE = 2_000;

/** Matches of a text that are counted. */
export const MOST_FOUND = 10_000;

/** While a text is sought: matches that are shown of a folded output, and lines before and after each. */
const FIRST_FOUND = 5,
  AROUND = 2;

/** Colours of a terminal that are in force at the same time, in escape sequences. */
const MOST_CARRIED = 32;

// biome-ignore lint/suspicious/noControlCharactersInRegex: terminals mark colours by this character
const COLOUR = /\u001b\[([\d;:]*)m/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: and everything else that they are told
const ESCAPE = /\u001b(?:\[[\d;:?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?)/g;

/** The lines of a text; the line end at its end begins no further one. */
export function linesOf(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  if (lines.length > 1 && lines.at(-1) === "") lines.pop();
  return lines;
}

/** A line without its escape sequences. */
export const plainOf = (line) => (line.includes("\u001b") ? line.replace(ESCAPE, "") : line);

/** For each line the escape sequences of the colours that the lines before it have left on. */
export function carriedOf(lines) {
  let held = [],
    before = "";
  return lines.map((line) => {
    const carried = before;
    if (!line.includes("\u001b[")) return carried;
    for (const [sequence, codes] of line.matchAll(COLOUR)) {
      if (/^0*(;|$)/.test(codes)) held = [];
      if (!/^[0;]*$/.test(codes)) held = [...held.slice(1 - MOST_CARRIED), sequence];
    }
    before = held.join("");
    return carried;
  });
}

/** The matches of a text in lines, whatever its case: [{line, start, end}], MOST_FOUND at most. */
export function found(lines, text) {
  const matches = [];
  for (const [line, whole] of lines.entries()) {
    for (const [start, end] of placesOf(whole, text)) {
      matches.push({ line, start, end });
      if (matches.length === MOST_FOUND) return matches;
    }
  }
  return matches;
}

/** The first of matches, in the order of lines, that is at a line or below it. */
export function firstAt(matches, line) {
  let low = 0,
    high = matches.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (matches[middle].line < line) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The parts of folded lines: [{from, to, isShown}], `to` exclusive. The last lines are shown; while a text is sought,
 * the lines about its first matches. A single line is not folded.
 */
export function foldsOf(number, matches = []) {
  const shown = matches.length
    ? matches.slice(0, FIRST_FOUND).map(({ line }) => [Math.max(0, line - AROUND), Math.min(number, line + AROUND + 1)])
    : [[Math.max(0, number - LAST), number]];
  const parts = [];
  let at = 0;
  for (const [from, to] of shown) {
    if (to <= at) continue;
    if (from - at > 1) parts.push({ from: at, to: from, isShown: false });
    const start = from - at > 1 ? from : at,
      last = parts.at(-1);
    if (last?.isShown && last.to === start) last.to = to;
    else parts.push({ from: start, to, isShown: true });
    at = to;
  }
  if (number - at > 1) parts.push({ from: at, to: number, isShown: false });
  else if (number > at) parts.at(-1).to = number;
  return parts;
}

/**
 * Tops of lines in rows, with the end of the last one. columns: of a row; 0: a line is one row. measured: rows of lines
 * that were measured.
 */
export function topsOf(lines, columns, measured = new Map()) {
  const tops = new Float64Array(lines.length + 1);
  for (let place = 0; place < lines.length; place += 1) {
    const length = columns && lines[place].length > columns ? Math.min(plainOf(lines[place]).length, MOST_OF_LINE) : 0;
    tops[place + 1] = tops[place] + (measured.get(place) ?? Math.max(1, columns && Math.ceil(length / columns)));
  }
  return tops;
}

/** The line that is in a row. */
export function lineAt(tops, row) {
  let low = 0,
    high = tops.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= row) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

/** The lines that an address names, from 1: "12" and "12-20" are [12, 12] and [12, 20]; null for none. */
export function rangeOf(named, number) {
  const [, first, last] = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(named ?? "") ?? [];
  if (!first) return null;
  const ends = [Number(first), Number(last ?? first)].map((line) => Math.min(number, Math.max(1, line)));
  return [Math.min(...ends), Math.max(...ends)];
}

/** The name of lines in an address. */
export const rangeName = (first, last) => (first === last ? String(first) : `${first}-${last}`);
