// What every live list has around its rows: what is new, what failed, more of it.
import { html } from "../lib/html.js";
import { counted } from "../lib/words.js";
import { Failure, Loading } from "./notices.js";

/**
 * The line above a list. It keeps its room, so that nothing moves when something new is told.
 *
 * name: of what it lists. total: how many there are, where that is known; undefined elsewhere.
 */
export function ListHead({ list, view, name, total }) {
  const { rows, newcomers, isStale, hasMore, isFull } = view;
  const renew = () => {
    scrollTo({ top: 0 });
    list.renew();
  };
  const hasOthers = hasMore || isFull;
  const number =
    rows && hasOthers && total >= rows.length
      ? counted(total, name)
      : rows
        ? counted(rows.length, name, hasOthers)
        : "";
  return html`<div class="list-head" role="status">
    <span class="muted">${number}</span>
    ${
      newcomers > 0 &&
      html`<button type="button" class="new" data-testid="show-new" onClick=${renew}>
      ${newcomers} new</button>`
    }
    ${newcomers === 0 && isStale && html`<button type="button" class="quiet" onClick=${renew}>Newest first</button>`}
  </div>`;
}

/** What stands below the rows. */
export function ListFoot({ list, view }) {
  const { rows, error, hasMore, isFull, isReading } = view;
  if (error) return html`<${Failure} error=${error} again=${() => (rows && hasMore ? list.more() : list.read())} />`;
  if (!rows) return html`<${Loading} />`;
  if (isFull)
    return html`<p class="muted">
      ${rows.length.toLocaleString("en")} are shown, and no more at once: filters find the others.</p>`;
  if (!hasMore) return null;
  return html`<p class="more"><button type="button" class="secondary" aria-busy=${isReading} disabled=${isReading}
    onClick=${() => list.more()}>Show more</button></p>`;
}

/** Move the focus among the links of a list's rows by `step`, from the one that has it. */
export function moveFocus(selector, step) {
  const links = [...document.querySelectorAll(selector)];
  const present = links.indexOf(document.activeElement);
  const next = present < 0 ? 0 : Math.max(0, Math.min(links.length - 1, present + step));
  links[next]?.focus();
  links[next]?.scrollIntoView({ block: "nearest" });
}
