// A time, relative in lists and of the clock in a talk, with the exact one on hover.
import { useEffect, useMemo, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { ago, clock, exact, now } from "../lib/words.js";

/**
 * Drawn again only when its words change: a list has a thousand of these, and the clock ticks each second.
 *
 * words(time, present): how it reads.
 */
export function Time({ at, words = ago }) {
  const [, setWords] = useState("");
  useEffect(() => (at ? now.subscribe((present) => setWords(words(at, present))) : undefined), [at]);
  const title = useMemo(() => at && exact(at), [at]);
  if (!at) return "–";
  return html`<time datetime=${at} title=${title}>${words(at, now.get())}</time>`;
}

/** The time of a step, which does not change: "12:41:48". */
export function Clock({ at }) {
  if (!at || !clock(at)) return "–";
  return html`<time datetime=${at} title=${exact(at)}>${clock(at)}</time>`;
}
