// The rows of the inbox, one line each, in their sections: to find what waits, to open it, and to choose several.
import { Component } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { alikeOf, ends, nameOf } from "../lib/pending.js";
import { groupBy, isOpen, targetOf } from "../lib/places.js";
import { setQuery } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { age, counted } from "../lib/words.js";
import { lineOf } from "./arguments.js";
import { NearDeadline } from "./deadline.js";
import { Outcome } from "./outcome.js";
import { effectsInWords, isFiltered, PromptFilters, quorumOf, riskOf, titleOf } from "./prompt_filters.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Rows that are drawn. */
const DRAWN = 500;

const RISK = { HIGH: "High", MEDIUM: "Medium", LOW: "Low", UNKNOWN: "Unknown" };

/** A box for all of some items, between empty and full where some are chosen. */
function ChooseAll({ items, chosen, onChoose, label, name }) {
  const box = useRef(null),
    number = items.filter((item) => chosen.has(nameOf(item))).length;
  useLayoutEffect(() => void (box.current.indeterminate = number > 0 && number < items.length));
  return html`<input ref=${box} type="checkbox" aria-label=${label} data-testid=${name} checked=${items.length > 0 && number === items.length}
    onChange=${(event) => onChoose(items, event.target.checked)} />`;
}

const conversationsOf = (items) => new Set(items.map((item) => item.conversation_id));

/** Of a group: in how many conversations it waits, or the one. */
function whereOf(items) {
  const { size } = conversationsOf(items);
  return size > 1 ? counted(size, "conversation") : titleOf(items[0]);
}

/** How what a row is about ended, or that it is being decided. */
function Fate({ row, fate, end }) {
  const [{ item }] = row.places;
  if (fate?.state === "sent") return html`<span class="outcome" aria-busy="true">Deciding</span>`;
  if (row.places.length > 1) return html`<span class="outcome">${counted(row.places.length, "action")} decided</span>`;
  return html`<span class="outcome" data-testid=${`outcome-${item.action_id}`}><${Outcome} fate=${fate} end=${end} /></span>`;
}

/**
 * A row, drawn again only when it changed, as there are hundreds. isStop: the keyboard comes to this one of the list;
 * arrows, j and k lead to the others. fate, end: of its first action. acts: {current: {show, choose, fold}}.
 */
class Row extends Component {
  shouldComponentUpdate(next) {
    const { row } = this.props;
    const isSame = (name) => next[name] === this.props[name];
    const isSamePlace = ({ item, state }, at) => item === row.places[at]?.item && state === row.places[at].state;
    return !(
      ["isCurrent", "isStop", "isChosen", "number", "fate", "end", "query", "mayChoose"].every(isSame) &&
      next.row.isUnfolded === row.isUnfolded &&
      next.row.places.length === row.places.length &&
      next.row.places.every(isSamePlace)
    );
  }

  render({ row, number, isCurrent, isStop, isChosen, fate, end, query, mayChoose, acts }) {
    const { item } = row.places.find(isOpen) ?? row.places[0],
      open = row.places.filter(isOpen).map((place) => place.item),
      isGroup = row.places.length > 1;
    const risk = riskOf(item),
      [lead, text] = lineOf(item),
      seen = [quorumOf(item), effectsInWords(item)].filter(Boolean).join(" · "),
      tab = isStop ? 0 : -1;
    const classes = [
      isCurrent && "current",
      !number && "ended",
      row.isMember && "member",
      isGroup && "group",
      `risk-${risk.toLowerCase()}`,
    ];
    return html`<li class=${classes.filter(Boolean).join(" ")} data-testid=${isGroup ? `same-${item.action_id}` : `line-${item.action_id}`}>
      ${
        mayChoose &&
        html`<input type="checkbox" tabindex=${tab} data-testid="choose" title="Key: x" aria-label=${`Choose ${item.tool_name}: ${text}`} checked=${isChosen} disabled=${!number}
        onChange=${(event) => acts.current.choose(open, event.target.checked)} />`
      }
      <button type="button" class="quiet open" data-testid="open" tabindex=${tab} aria-current=${isCurrent} title="Key: Enter" onClick=${() => acts.current.show(row)}>
        <span class=${`risk ${risk.toLowerCase()}`}>${RISK[risk]}</span>
        <span class="what"><span class="says">${lead && html`<span class="lead"><${Text} text=${lead} prose /></span> `}<code><${Text} text=${text} prose /></code></span>
          ${seen && html`<span class="seen" data-testid="row-seen"><${Text} text=${seen} prose /></span>`}</span>
        ${isGroup && html`<span class="count" title=${`The same command in ${counted(conversationsOf(open).size, "conversation")}`}>${number || row.places.length}×</span>`}
        ${
          !number
            ? html`<${Fate} row=${row} fate=${fate} end=${end} />`
            : html`<span class="of">${query.group === "conversation_id" ? "" : html`<${Text} text=${whereOf(open)} prose />`}</span>
            <span class="when"><${NearDeadline} at=${soonest(open)}><${Time} at=${item.since} words=${age} /><//></span>`
        }
      </button>
      ${
        isGroup &&
        html`<button type="button" class="quiet fold" data-testid="fold" tabindex=${tab} aria-expanded=${row.isUnfolded} title="Key: o" aria-label="The actions of the group"
        onClick=${() => acts.current.fold(row)}>${row.isUnfolded ? "▾" : "▸"}</button>`
      }
    </li>`;
  }
}

/** The deadline that comes first, or null. */
function soonest(items) {
  return (
    items
      .map((item) => item.expires_at)
      .filter(Boolean)
      .sort()[0] ?? null
  );
}

/** Rows by their sections: [[key, words, rows]]. */
function sectionsOf(rows) {
  const sections = groupBy(rows, ({ section: [key] }) => key);
  return [...sections.values()].map((some) => [...some[0].section, some]);
}

const itemsOf = (rows) =>
  rows.filter((row) => !row.isMember).flatMap(({ places }) => places.filter(isOpen).map(({ item }) => item));

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
 * all: the pending actions. rows: of those that pass the filters. index: of the current row. decided: what this page
 * decided. show(key), fold(row): open what a row leads to, and the members of a group. onStep(by): to another row.
 */
export function InboxRows({ all, rows, index, query, decided, chosen, onChoose, show, fold, onStep }) {
  const acts = useRef({}),
    ended = useStore(ends);
  acts.current = {
    choose: onChoose,
    fold,
    show: (row) => show(targetOf(row)),
  };
  if (!all.length && !rows.length) return null;
  const items = itemsOf(rows),
    drawn = rows.slice(0, DRAWN),
    stop = Math.max(0, index);
  const onKeyDown = (event) => {
    if (event.target.matches("input:not([type=checkbox]), select") || event.ctrlKey || event.metaKey || event.altKey)
      return;
    const row = rows[index],
      isFolder =
        row &&
        (row.places.length > 1
          ? row.isUnfolded === (event.key === "ArrowLeft")
          : row.isMember && event.key === "ArrowLeft");
    const acted = { ArrowDown: () => onStep(1), ArrowUp: () => onStep(-1) }[event.key];
    if (acted) acted();
    else if (["ArrowLeft", "ArrowRight"].includes(event.key) && isFolder) fold(row);
    else return;
    event.preventDefault();
  };
  const line = (row) => {
    const [{ item }] = row.places,
      open = row.places.filter(isOpen),
      number = open.filter((place) => !["sent", "taken"].includes(decided.get(nameOf(place.item))?.state)).length;
    return html`<${Row} key=${row.id} row=${row} number=${number} isCurrent=${row === rows[index]} isStop=${row === rows[stop]} query=${query}
      isChosen=${open.length > 0 && open.every((place) => chosen.has(nameOf(place.item)))} fate=${decided.get(nameOf(item))} end=${ended.get(nameOf(item))}
      mayChoose=${Boolean(onChoose)} acts=${acts} />`;
  };
  return html`
    <div class="tools">
      <${PromptFilters} items=${all} query=${query} />
      <${Choices} items=${items} all=${all} query=${query} chosen=${chosen} onChoose=${onChoose} />
    </div>
    <div class="rows-of" onKeyDown=${onKeyDown}>
      ${sectionsOf(drawn).map(
        ([key, words, some]) => html`<section key=${key}>
        ${
          words &&
          html`<h2>${onChoose && html`<${ChooseAll} items=${itemsOf(some)} chosen=${chosen} onChoose=${onChoose} label=${`Choose all: ${words}`} name=${`choose-group-${key}`} />`}
          <${Text} text=${words} prose /> <span class="muted">${itemsOf(some).length}</span></h2>`
        }
        <ul>${some.map(line)}</ul>
      </section>`,
      )}
      ${rows.length > DRAWN && html`<p class="muted">${(rows.length - DRAWN).toLocaleString("en")} more are not shown. Use a filter to narrow the list.</p>`}
    </div>`;
}
