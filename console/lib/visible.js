// Text as people can read it: what does not show as itself stands as an escape such as \u{202e}. The server's
// visible.py has the same rule for the pages of one-time links; a test compares the two.
const BLANK = String.raw`\u2800\u{16fe4}\u{1d159}`;
const UNSEEN = String.raw`\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}${BLANK}`;

/** In prose the parts of emoji and the indents of lines are no surprise: joiners, variation selectors and tabs stay. */
const IN_PROSE = String.raw`\t\u200d\ufe0e\ufe0f\u00a0\u3000`;

const RUNS = new RegExp(`((?:(?![ \\n])[${UNSEEN}])+)`, "u");
const RUNS_IN_PROSE = new RegExp(`((?:(?![ \\n${IN_PROSE}])[${UNSEEN}])+)`, "u");

/** The text in parts: [text, isEscape] of each run. prose: for what was said, where nothing of it will run. */
export function parts(text, { prose = false } = {}) {
  return text
    .split(prose ? RUNS_IN_PROSE : RUNS)
    .map((run, place) => (place % 2 ? [escaped(run), true] : [run, false]))
    .filter(([run]) => run);
}

/** The text in so many characters: a longer one ends in `…`. */
export function beginning(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** The text with an escape for every character that does not show as itself. */
export function visible(text) {
  return parts(text)
    .map(([part]) => part)
    .join("");
}

function escaped(run) {
  return Array.from(run, (character) => `\\u{${character.codePointAt(0).toString(16)}}`).join("");
}

/** A text in small letters; a character whose small one is longer stays as it is, so that places stay true. */
function folded(text) {
  const low = text.toLowerCase();
  if (low.length === text.length) return low;
  return Array.from(text, (one) => (one.toLowerCase().length === one.length ? one.toLowerCase() : one)).join("");
}

/** Where a text has another one, whatever its case: [[start, end]]. */
export function placesOf(whole, text) {
  const places = [],
    low = folded(whole),
    wanted = folded(text);
  if (!wanted) return places;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, at + wanted.length))
    places.push([at, at + wanted.length]);
  return places;
}
