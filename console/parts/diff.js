// What a change of a text removes and adds, line by line.
import { useMemo } from "preact/hooks";
import { html } from "../lib/html.js";
import { Code } from "./code.js";
import { Text } from "./text.js";

/** Most pairs of lines that are compared: a larger change stands as all that goes, and then all that comes. */
const MOST_PAIRS = 250_000;

/** A change in lines: [sign, text] of each, the sign "-", "+" or " ". */
export function changes(before, after) {
  const isWhole = [before, after].every((text) => text === "" || text.endsWith("\n"));
  const linesOf = (text) => (text === "" ? [] : (isWhole ? text.slice(0, -1) : text).split("\n"));
  const old = linesOf(before),
    fresh = linesOf(after);
  let start = 0,
    end = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start++;
  while (end < old.length - start && end < fresh.length - start && old.at(-1 - end) === fresh.at(-1 - end)) end++;
  const removed = old.slice(start, old.length - end),
    added = fresh.slice(start, fresh.length - end);
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(old.slice(0, start)), ...middle(removed, added), ...same(end ? old.slice(-end) : [])];
}

function middle(removed, added) {
  if (removed.length * added.length > MOST_PAIRS) {
    return [...removed.map((line) => ["-", line]), ...added.map((line) => ["+", line])];
  }
  const width = added.length + 1,
    lengths = new Uint32Array((removed.length + 1) * width);
  for (let row = removed.length - 1; row >= 0; row--) {
    for (let column = added.length - 1; column >= 0; column--) {
      const place = row * width + column;
      lengths[place] =
        removed[row] === added[column]
          ? lengths[place + width + 1] + 1
          : Math.max(lengths[place + width], lengths[place + 1]);
    }
  }
  const found = [];
  let row = 0,
    column = 0;
  while (row < removed.length || column < added.length) {
    const place = row * width + column;
    if (row < removed.length && removed[row] === added[column]) {
      found.push([" ", removed[row++]]);
      column++;
    } else if (column === added.length || (row < removed.length && lengths[place + width] >= lengths[place + 1])) {
      found.push(["-", removed[row++]]);
    } else {
      found.push(["+", added[column++]]);
    }
  }
  return found;
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
export function Diff({ before, after, label = "Change" }) {
  const lines = useMemo(() => changes(before, after), [before, after]);
  const text = lines.map(([sign, line]) => `${sign} ${line}`).join("\n");
  return html`<${Code} text=${text} label=${label} name="diff">
    ${(shown) =>
      pieces(shown.split("\n").map((line) => [line[0], line])).map(
        ([sign, some]) => html`<span class=${NAMES[sign]}><${Text} text=${some.join("\n")} /></span>`,
      )}
  <//>`;
}
