// The list beside the prompts: a line for each, in groups, to find one and to choose several.
import { Component } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { useMedia } from "../lib/media.js";
import { alikeOf, nameOf } from "../lib/pending.js";
import { setQuery } from "../lib/router.js";
import { beginning } from "../lib/visible.js";
import { groupOf, isFiltered, PromptFilters, riskOf, titleOf } from "./prompt_filters.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Lines that are drawn, and characters of one. */
const DRAWN = 500,
  LINE = 160;

/** Windows in which the list stands beside the prompts; in others it is above them, and closed. */
const WIDE = "(min-width: 72rem)";

const RISK = { HIGH: "High", MEDIUM: "Medium", LOW: "Low", UNKNOWN: "Unknown" };

/** What an action does, in a line, with "…" where there is more: its command, the first of its arguments that is text, or all of them. */
function lineOf({ arguments: given }) {
  const isSaid = (value) => typeof value === "string" && value.trim(),
    { command, ...others } = Object(given);
  const first = isSaid(command) ? command : (Object.values(others).find(isSaid) ?? JSON.stringify(given));
  const [line, ...more] = String(first ?? "")
    .trim()
    .split("\n");
  return more.length ? `${line.slice(0, LINE)} …` : beginning(line, LINE);
}

/** A box for all of some items, between empty and full where some are chosen. */
function ChooseAll({ items, chosen, onChoose, label, name }) {
  const box = useRef(null),
    number = items.filter((item) => chosen.has(nameOf(item))).length;
  useLayoutEffect(() => void (box.current.indeterminate = number > 0 && number < items.length));
  return html`<input ref=${box} type="checkbox" aria-label=${label} data-testid=${name} checked=${items.length > 0 && number === items.length}
    onChange=${(event) => onChoose(items, event.target.checked)} />`;
}

/** A line, drawn again only when it changed, as there are hundreds. isStop: the keyboard comes to this one of the list; j and
 * k lead to the others. acts: {current: {show(place), choose(items, isChosen)}}; mayChoose: whether there is a box. */
class Line extends Component {
  shouldComponentUpdate(next) {
    const isSame = (name) => next[name] === this.props[name];
    return (
      next.place.item !== this.props.place.item ||
      next.place.state !== this.props.place.state ||
      !["isCurrent", "isStop", "group", "isChosen", "mayChoose"].every(isSame)
    );
  }

  render({ place, isCurrent, isStop, group, isChosen, mayChoose, acts }) {
    const { item, state } = place,
      risk = riskOf(item),
      isOpen = state === "open",
      stop = isStop ? 0 : -1;
    return html`<li class=${`${isCurrent ? "current" : ""}${isOpen ? "" : " ended"}`} data-testid=${`line-${item.action_id}`}>
      ${
        mayChoose &&
        html`<input type="checkbox" tabindex=${stop} aria-label=${`Choose ${item.tool_name}: ${lineOf(item)}`} checked=${isChosen} disabled=${!isOpen}
        onChange=${(event) => acts.current.choose([item], event.target.checked)} />`
      }
      <button type="button" class="quiet" tabindex=${stop} aria-current=${isCurrent} onClick=${() => acts.current.show(place)}>
        <span class="says"><${Text} text=${lineOf(item)} prose /></span>
        <span class="of"><code><${Text} text=${item.tool_name} /></code>${group !== "conversation_id" && html` <${Text} text=${titleOf(item)} prose />`}</span>
        ${group !== "security_risk" && html`<span class=${`risk ${risk.toLowerCase()}`}>${RISK[risk]}</span>`}
        <span class="when"><${Time} at=${item.since} /></span>
      </button>
    </li>`;
  }
}

/** The places in their groups: [[key, words, places]]. */
function grouped(places, query) {
  const groups = new Map();
  for (const place of places) {
    const [key, words] = groupOf(place.item, query);
    if (!groups.has(key)) groups.set(key, [key, words, []]);
    groups.get(key)[2].push(place);
  }
  return [...groups.values()];
}

/** Low risk alone: an agent that takes one decision for several must have none of another risk among them. */
function ofLowRisk(items) {
  return items.filter((item) => alikeOf(item).every((one) => riskOf(one) === "LOW"));
}

function Choices({ items, all, query, chosen, onChoose }) {
  const low = ofLowRisk(items);
  return html`<div class="choices">
    ${onChoose && items.length > 0 && html`<${ChooseAll} items=${items} chosen=${chosen} onChoose=${onChoose} label="Choose all that are listed" name="choose-all" />`}
    <span class="muted" role="status">${isFiltered(query) ? `${items.length} of ${all.length}` : `${all.length} in all`}</span>
    ${
      isFiltered(query)
        ? html`<button type="button" class="quiet" data-testid="clear-filters" onClick=${() => setQuery({ group: query.group })}>Clear the filters</button>`
        : null
    }
    ${onChoose && low.length > 0 && html`<button type="button" class="quiet" data-testid="choose-low" onClick=${() => onChoose(low, true)}>Choose all of low risk (${low.length})</button>`}
  </div>`;
}

/**
 * all: the pending actions. places: those of the list of prompts, {key, item, state}. current: the key of the current one.
 *
 * show(place): brings its prompt into view. chosen, onChoose(items, isChosen): as those of the list of prompts.
 */
export function PromptIndex({ all, places, query, current, show, chosen, onChoose }) {
  const isWide = useMedia(WIDE),
    list = useRef(null),
    acts = useRef({}),
    isOpen = useRef(false);
  isOpen.current ||= isFiltered(query); // once open it stays so: the search in it that is emptied keeps the focus
  acts.current = { show, choose: onChoose };
  const open = places.filter(({ state }) => state === "open"),
    items = open.map(({ item }) => item);
  const drawn = places.filter(({ state }) => state !== "aside").slice(0, DRAWN),
    stop = drawn.find(({ key }) => key === current) ?? drawn[0];
  useEffect(() => {
    const line = list.current?.querySelector("li.current");
    if (isWide && line) line.scrollIntoView({ block: "nearest" });
  }, [current, isWide]);
  if (!all.length && !places.length) return null;
  const line = (
    place,
  ) => html`<${Line} key=${place.key} place=${place} isCurrent=${place.key === current} isStop=${place === stop} group=${query.group}
    isChosen=${chosen.has(nameOf(place.item))} mayChoose=${Boolean(onChoose)} acts=${acts} />`;
  const body = html`
    <${PromptFilters} items=${all} query=${query} />
    <${Choices} items=${items} all=${all} query=${query} chosen=${chosen} onChoose=${onChoose} />
    ${grouped(drawn, query).map(
      ([key, words, some]) => html`<section key=${key}>
      ${
        words &&
        html`<h2>${onChoose && html`<${ChooseAll} items=${some.filter(({ state }) => state === "open").map(({ item }) => item)} chosen=${chosen} onChoose=${onChoose} label=${`Choose all: ${words}`} name=${`choose-group-${key}`} />`}
        <${Text} text=${words} prose /> <span class="muted">${some.length}</span></h2>`
      }
      <ul>${some.map(line)}</ul>
    </section>`,
    )}
    ${places.length > DRAWN && html`<p class="muted">${(places.length - DRAWN).toLocaleString("en")} more are not shown. Use a filter to narrow the list.</p>`}`;
  return isWide
    ? html`<aside class="index" ref=${list} aria-label="List" data-testid="index">${body}</aside>`
    : html`<details class="index quiet" ref=${list} data-testid="index" open=${isOpen.current}><summary>List and filters</summary>${body}</details>`;
}
