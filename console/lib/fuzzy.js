// What somebody means who types a part of a name, and which characters of the name that are.

/** Scores of a word by where it stands: at the start of the text, at that of a word, within one. */
const AT_START = 4,
  AT_WORD = 3,
  WITHIN = 1;

const isWordStart = (text, at) => at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1]);

/** A text in small letters, of the same length: what has another length stays. */
const small = (text) =>
  Array.from(text, (letter) => (letter.toLowerCase().length === letter.length ? letter.toLowerCase() : letter)).join(
    "",
  );

/** Where a word stands in a text: {at: the places of its letters, score}; null where it does not. */
function wordIn(word, text) {
  let best = null;
  for (let from = text.indexOf(word); from >= 0; from = text.indexOf(word, from + 1)) {
    const score = from === 0 ? AT_START : isWordStart(text, from) ? AT_WORD : WITHIN;
    if (!best || score > best.score) best = { from, score };
    if (score >= AT_WORD) break;
  }
  return best && { at: Array.from(word, (_, place) => best.from + place), score: best.score };
}

/** Where letters stand in a text one after the other; null where they do not. leaps: to the starts of words. */
function lettersIn(letters, text, leaps) {
  const at = [];
  let from = 0;
  for (const letter of letters) {
    const next = text.indexOf(letter, from);
    if (next < 0) return null;
    let start = next;
    while (leaps && start >= 0 && !isWordStart(text, start)) start = text.indexOf(letter, start + 1);
    const isLeap = leaps && start >= 0 && (at.length === 0 || next !== from);
    at.push(isLeap ? start : next);
    from = at.at(-1) + letter.length;
  }
  return { at, score: at.filter((place) => isWordStart(text, place)).length / text.length };
}

/**
 * How well a text is meant by what was typed: {score, marks: [[start, end]]}; null where it is not.
 *
 * Each typed word stands in the text; else all letters do, in their order.
 */
export function match(typed, text) {
  const words = small(typed).split(/\s+/).filter(Boolean),
    lower = small(text);
  if (!words.length) return { score: 0, marks: [] };
  const found = words.map((word) => wordIn(word, lower));
  const whole = found.every(Boolean)
    ? { at: found.flatMap(({ at }) => at), score: found.reduce((sum, { score }) => sum + score, 0) / words.length }
    : (lettersIn(words.join(""), lower, true) ?? lettersIn(words.join(""), lower, false));
  if (!whole) return null;
  const marks = [];
  for (const place of [...new Set(whole.at)].sort((a, b) => a - b)) {
    if (marks.at(-1)?.[1] === place) marks.at(-1)[1] += 1;
    else marks.push([place, place + 1]);
  }
  return { score: whole.score, marks };
}

/** The items that are meant, the best first, with their marks. Of equals the first one stays first. */
export function ranked(typed, items) {
  return items
    .map((item) => ({ item, found: match(typed, item.text) }))
    .filter(({ found }) => found)
    .sort((a, b) => b.found.score - a.found.score)
    .map(({ item, found }) => ({ ...item, ...found }));
}
