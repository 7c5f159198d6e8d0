// The rows of the inbox, one line each, in their sections: to find what waits, to open it, and to choose several.
import { Component } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { fateOf, fates, isGone } from "../lib/decide.js";
import { nameOfAsked, outcomes } from "../lib/destinations.js";
import { alikeOf, ends, nameOf } from "../lib/pending.js";
import { groupBy, isOpen, targetOf } from "../lib/places.js";
import { setQuery } from "../lib/router.js";
import { useStore } from "../lib/store.js";
import { visible } from "../lib/visible.js";
import { age, counted, millis } from "../lib/words.js";
import { isIncomplete, lineOf } from "./arguments.js";
import { askerOf, isInTerminal, useInTerminal } from "./asker.js";
import { NearDeadline } from "./deadline.js";
import { Outcome } from "./outcome.js";
import {
  areMixed,
  effectsOf,
  highestRisk,
  isFiltered,
  patternOf,
  placeOf,
  PromptFilters,
  quorumOf,
  riskOf,
  titleOf,
} from "./prompt_filters.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Rows that are drawn. */
const DRAWN = 500;

/** Milliseconds between the first and the last of a group from which on its row has both ages. */
const SPAN = 60_000;

const RISK = { HIGH: "High", MEDIUM: "Medium", LOW: "Low", UNKNOWN: "Unknown" };

/** A box for all of some items, between empty and full where some are chosen. */
function ChooseAll({ items, chosen, onChoose, label, name }) {
  const box = useRef(null),
    number = items.filter((item) => chosen.has(nameOf(item))).length;
  useLayoutEffect(() => void (box.current.indeterminate = number > 0 && number < items.length));
  return html`<input ref=${box} type="checkbox" aria-label=${label} data-testid=${name}
    checked=${items.length > 0 && number === items.length}
    onChange=${(event) => onChoose(items, event.target.checked)} />`;
}

const conversationsOf = (items) => new Set(items.map((item) => item.conversation_id));

/** Of a group: in how many conversations it waits, or the one. */
function whereOf(items) {
  const { size } = conversationsOf(items);
  return size > 1 ? counted(size, "conversation") : titleOf(items[0]);
}

/** What a row is about, in a line: [lead, text]. A group of like commands is called by what they have in common. */
function wordsOf(items) {
  const [item] = items;
  if (item.asked) return [item.asked.budget ? "More of" : "Reach", nameOfAsked(item.asked)];
  const [lead, text] = lineOf(item);
  return [lead, items.length > 1 && areMixed(items) ? patternOf(item) : text];
}

/** What the server sees in any of some items, in words, who has approved, and whether less is shown than will run. */
function seenIn(items) {
  const words = new Set(items.flatMap((item) => effectsOf(item).map((one) => one.words))),
    isPart = items.some((item) => isIncomplete(item.arguments)) && "Shown in part";
  return [isPart, items.length === 1 && quorumOf(items[0]), ...words].filter(Boolean).join(" · ");
}

/** When the first of some items began to wait; of a group also when the last did, where it came much later. */
function Ages({ items }) {
  const since = items.map((item) => item.since).sort(),
    [first, last] = [since[0], since.at(-1)];
  const isSpan = millis(last) - millis(first) >= SPAN;
  return html`${isSpan && html`<${Time} at=${last} words=${age} />–`}<${Time} at=${first} words=${age} />`;
}

/** What a row begins with: the risk, or that it is of another kind, or that only its terminal can answer. */
function Kind({ items, risk }) {
  const [item] = items,
    isThere = useInTerminal(item) && items.every((one) => isInTerminal(one));
  if (item.asked) return html`<span class="risk unknown">${item.asked.budget ? "Budget" : "Network"}</span>`;
  if (isThere) return html`<span class="risk unknown" title="Asked in the terminal">Terminal</span>`;
  return html`<span class=${`risk ${risk.toLowerCase()}`}>${RISK[risk]}</span>`;
}

/** How what a row is about ended, or that it is being decided. */
function Fate({ row, fate, end }) {
  const [{ item }] = row.places;
  if (fate?.state === "sent") return html`<span class="outcome" aria-busy="true">Deciding</span>`;
  if (item.asked) return html`<span class="outcome"><${Text} text=${fate?.words ?? "No longer asked"} prose /></span>`;
  if (row.places.length > 1) return html`<span class="outcome">${counted(row.places.length, "action")} decided</span>`;
  return html`<span class="outcome" data-testid=${`outcome-${item.action_id}`}><${Outcome} fate=${fate}
    end=${end} /></span>`;
}

/**
 * A row, drawn again only when it changed, as there are hundreds. isStop: the keyboard comes to this one of the list;
 * arrows, j and k lead to the others. fate, end: of its first action. acts: {current: {show, choose, fold}}.
 */
class InboxRow extends Component {
  shouldComponentUpdate(next) {
    const { row } = this.props;
    const isSame = (name) => next[name] === this.props[name];
    const isSamePlace = ({ item, state }, at) => item === row.places[at]?.item && state === row.places[at].state;
    return !(
      ["isCurrent", "isStop", "isChosen", "number", "fate", "end", "query", "places", "mayChoose"].every(isSame) &&
      next.row.isUnfolded === row.isUnfolded &&
      next.row.places.length === row.places.length &&
      next.row.places.every(isSamePlace)
    );
  }

  render({ row, number, isCurrent, isStop, isChosen, fate, end, query, places, mayChoose, acts }) {
    const open = row.places.filter(isOpen).map((place) => place.item),
      shown = open.length ? open : row.places.map((place) => place.item),
      [item] = shown,
      isGroup = row.places.length > 1;
    const risk = highestRisk(shown),
      [lead, text] = wordsOf(shown),
      seen = seenIn(shown),
      tab = isStop ? 0 : -1;
    const classes = [
      isCurrent && "current",
      !number && "ended",
      row.isMember && "member",
      isGroup && "group",
      item.asked ? "asked" : `risk-${risk.toLowerCase()}`,
    ];
    const can = isGroup ? open.filter((one) => riskOf(one) !== "HIGH") : open; // no group decides a high risk
    return html`<li class=${classes.filter(Boolean).join(" ")}
      data-testid=${isGroup ? `same-${row.places[0].item.action_id}` : `line-${item.action_id}`}>
      ${
        mayChoose &&
        html`<input type="checkbox" tabindex=${tab} data-testid="choose" title="Key: x"
          aria-label=${`Choose ${item.tool_name}: ${text}`} checked=${isChosen}
        disabled=${!number || !can.length || item.asked}
          onChange=${(event) => acts.current.choose(can, event.target.checked)} />`
      }
      <button type="button" class="quiet open" data-testid="open" tabindex=${tab} aria-current=${isCurrent}
        title="Key: Enter" onClick=${() => acts.current.show(row)}>
        <${Kind} items=${shown} risk=${risk} />
        <span class="what"><span class="says">${lead && html`<span class="lead"><${Text} text=${lead} prose /></span> `}
          <code><${Text} text=${text} prose /></code></span>
          ${seen && html`<span class="seen" data-testid="row-seen"><${Text} text=${seen} prose /></span>`}</span>
        ${
          isGroup &&
          html`<span class="count"
          title=${`${
            areMixed(shown) ? "Commands like it" : "The same command"
          } in ${counted(conversationsOf(shown).size, "conversation")}`}>
          ${number || row.places.length}×</span>`
        }
        ${
          !number
            ? html`<${Fate} row=${row} fate=${fate} end=${end} />`
            : html`<span class="of"><${Machine} items=${open} />
              ${places && !item.asked_from && html`<${Place} items=${open} isShort=${places === "short"} />`}
              ${query.group === "conversation_id" ? "" : html`<${Text} text=${whereOf(open)} prose />`}</span>
            <span class="when"><${NearDeadline} at=${soonest(open)}><${Ages} items=${open} /><//></span>`
        }
      </button>
      ${
        isGroup &&
        html`<button type="button" class="quiet fold" data-testid="fold" tabindex=${tab} aria-expanded=${row.isUnfolded}
          title="Key: o" aria-label="The actions of the group"
        onClick=${() => acts.current.fold(row)}>${row.isUnfolded ? "▾" : "▸"}</button>`
      }
    </li>`;
  }
}

/**
 * How rows name the repositories and folders of a list: "" where it has fewer than two, "short" where ends tell them
 * apart.
 */
function placeNamesOf(items) {
  const names = new Set(items.map(placeOf).filter(Boolean)),
    ends = new Set([...names].map(endOf));
  if (names.size < 2) return "";
  return ends.size === names.size ? "short" : "full";
}

/** Machines from which agents outside of sandboxes ask. */
function Machine({ items }) {
  const asked = items.flatMap((item) => (item.asked_from ? [item.asked_from] : [])),
    [name, ...others] = new Set(asked.map((of) => of.machine));
  if (!name) return null;
  const words = others.length ? counted(others.length + 1, "machine") : name;
  return html`<span class="row-place" data-testid="row-machine" title=${visible(asked.map(askerOf).join("\n"))}><${Text}
    text=${words} prose /></span>`;
}

const endOf = (name) => name.split("/").at(-1);

/** In which repository or folder items wait. */
function Place({ items, isShort }) {
  const names = new Set(items.map(placeOf)),
    [name] = names;
  if (names.size > 1) return html`<span class="row-place">${counted(names.size, "place")}</span>`;
  return (
    name &&
    html`<span class="row-place" data-testid="row-place" title=${visible(name)}><${Text}
      text=${isShort ? endOf(name) : name} prose /></span>`
  );
}

/** Earliest deadline, or null. */
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

/** The actions of rows that wait: those that boxes choose. */
const itemsOf = (rows) =>
  rows
    .filter((row) => !row.isMember)
    .flatMap(({ places }) => places.filter((place) => isOpen(place) && !place.item.asked).map(({ item }) => item));

/** Low risk alone: an agent that takes one decision for several must have none of another risk among them. */
function ofLowRisk(items) {
  return items.filter((item) => alikeOf(item).every((one) => riskOf(one) === "LOW"));
}

function RowChoices({ items, all, query, chosen, onChoose }) {
  const low = ofLowRisk(items);
  return html`<div class="choices">
    ${
      onChoose &&
      items.length > 0 &&
      html`<${ChooseAll} items=${items} chosen=${chosen} onChoose=${onChoose} label="Choose all that are listed"
      name="choose-all" />`
    }
    <span class="muted" role="status">
      ${isFiltered(query) ? `${items.length} of ${all.length}` : `${all.length} in all`}</span>
    ${
      isFiltered(query)
        ? html`<button type="button" class="quiet" data-testid="clear-filters"
          onClick=${() => setQuery({ group: query.group }, true)}>Clear the filters</button>`
        : null
    }
    ${
      onChoose &&
      low.length > 0 &&
      html`<button type="button" class="quiet" data-testid="choose-low"
      onClick=${() => onChoose(low, true)}>Choose all of low risk (${low.length})</button>`
    }
  </div>`;
}

/**
 * all: what waits. rows: of what passes the filters. index: of the current row. show(key), fold(row): open what a row
 * leads to, and the members of a group. onStep(by): to another row.
 */
export function InboxRows({ all, rows, index, query, chosen, onChoose, show, fold, onStep }) {
  const acts = useRef({}),
    ended = useStore(ends);
  useStore(outcomes);
  useStore(fates);
  acts.current = {
    choose: onChoose,
    fold,
    show: (row) => show(targetOf(row)),
  };
  if (!all.length && !rows.length) return null;
  const items = itemsOf(rows),
    placeNames = placeNamesOf(all),
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
      can = open.filter((place) => row.places.length === 1 || riskOf(place.item) !== "HIGH"),
      number = open.filter((place) => !isGone(place.item)).length;
    return html`<${InboxRow} key=${row.id} row=${row} number=${number} isCurrent=${row === rows[index]}
      isStop=${row === rows[stop]} query=${query}
      isChosen=${can.length > 0 && can.every((place) => chosen.has(nameOf(place.item)))} fate=${fateOf(item)}
        end=${ended.get(nameOf(item))}
      places=${placeNames} mayChoose=${Boolean(onChoose)} acts=${acts} />`;
  };
  return html`
    <div class="tools">
      <${PromptFilters} items=${all} query=${query} />
      <${RowChoices} items=${items} all=${all} query=${query} chosen=${chosen} onChoose=${onChoose} />
    </div>
    <div class="rows-of" onKeyDown=${onKeyDown}>
      ${sectionsOf(drawn).map(
        ([key, words, some]) => html`<section key=${key}>
        ${
          words &&
          html`<h2>${
            onChoose &&
            html`<${ChooseAll} items=${itemsOf(some)} chosen=${chosen} onChoose=${onChoose}
            label=${`Choose all: ${words}`} name=${`choose-group-${key}`} />`
          }
          <${Text} text=${words} prose /> <span class="muted">${itemsOf(some).length}</span></h2>`
        }
        <ul>${some.map(line)}</ul>
      </section>`,
      )}
      ${
        rows.length > DRAWN &&
        html`<p class="muted">
        ${(rows.length - DRAWN).toLocaleString("en")} more are not shown. Use a filter to narrow the list.</p>`
      }
    </div>`;
}
