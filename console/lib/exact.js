// JSON whose numbers keep every digit: what a person decides about must not be rounded by the page.

/** Most digits that a JavaScript number keeps. */
const DIGITS = 15;

/** A number with more digits stands for its own text, which JSON.stringify writes again. */
function kept(_, value, context) {
  const { rawJSON } = /** @type {any} */ (JSON); // newer than what tsc knows
  if (typeof value !== "number" || !context || !rawJSON) return value;
  const digits = context.source.replace(/[eE].*/, "").replace(/\D/g, "").length;
  return digits > DIGITS || !Number.isFinite(value) ? rawJSON(context.source) : value;
}

/** Parse JSON. Throws SyntaxError. */
export function parseExactly(text) {
  return JSON.parse(text, kept);
}
