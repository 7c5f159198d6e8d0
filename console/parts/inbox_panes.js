// What waits in the inbox: rows, and beside them, or on a page of its own in a small window, what the current row is
// about.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { fateOf, fates, isGone } from "../lib/decide.js";
import { outcomes } from "../lib/destinations.js";
import { html } from "../lib/html.js";
import { useMedia } from "../lib/media.js";
import { nameOf } from "../lib/pending.js";
import {
  anew,
  entry,
  groupBy,
  headOf,
  indexOf,
  isOpen,
  merged,
  nextAfter,
  placesOf,
  rowsOf,
  setAside,
  stepFrom,
  targetOf,
} from "../lib/places.js";
import { go, setQuery } from "../lib/router.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { isOwn, useCurrent, useHover, useLettingGo, useRedraw } from "./held.js";
import { InboxRows } from "./inbox_rows.js";
import { Lazy } from "./lazy.js";
import { tell } from "./notices.js";
import { Prompt } from "./prompt.js";
import { areMixed, byGroup, fits, groupingOf, groupOf, riskOf } from "./prompt_filters.js";

/** Windows in which the detail stands beside the rows; in others it takes their place. */
const WIDE = "(min-width: 1100px) and (min-height: 30rem)";

const loadGroup = () => import("./inbox_group.js"),
  loadAsked = () => import("./destination.js").then(({ AskedCard }) => ({ default: AskedCard }));

/** Whether a place waits for a decision, of which none is on its way. */
const waits = (place) => isOpen(place) && !isGone(place.item);

/** The places of what waits, as they are after a change: a ref. */
function usePlaces(items, query, isHeld) {
  const places = useRef([]),
    scope = JSON.stringify({ ...query, open: undefined }),
    drawnScope = useRef(scope);
  places.current = (scope === drawnScope.current ? merged : anew)(places.current, items, {
    isHeld,
    passes: (item) => fits(item, query),
    order: byGroup(items, query),
    groupOf: groupingOf(items, query),
  });
  drawnScope.current = scope;
  return places;
}

/** The rows in their sections: [{id, …, section: [key, words]}], those of a section one after the other. */
function sectioned(places, unfolded, query) {
  const rows = rowsOf(places, unfolded).map((row) => ({ ...row, section: groupOf(row.places[0].item, query) }));
  return [...groupBy(rows, ({ section: [key] }) => key).values()].flat();
}

/** The way back from the detail that took the place of the rows, and where in them it is. */
function BackToRows({ rows, index, onBack }) {
  const targets = rows.filter((row, place) => targetOf(row) || place === index),
    at = targets.indexOf(rows[index]) + 1;
  return html`<p class="back">
    <button type="button" class="quiet" data-testid="back" aria-keyshortcuts="Escape" onClick=${onBack}>← Inbox</button>
    <span class="muted">${at} of ${targets.length}</span>
  </p>`;
}

/** What is current, whole: an action, a destination, or a group. about: its places. row: of what is current. */
function InboxDetail({ about, current, row, onAside, show, fold }) {
  const takesFocus = current.since > 0,
    [place] = about;
  if (current.key === headOf(place.group))
    return html`<${Lazy} load=${loadGroup} key=${current.key} places=${about} since=${current.since}
      takesFocus=${takesFocus} onAside=${onAside} show=${show} isUnfolded=${Boolean(row?.isUnfolded)}
        onUnfold=${() => fold(row)} />`;
  if (place.item.asked)
    return html`<${Lazy} load=${loadAsked} key=${place.key} item=${place.item.asked} isEnded=${!isOpen(place)} isCurrent
      since=${current.since} takesFocus=${takesFocus} onAside=${onAside} />`;
  return html`<${Prompt} key=${place.key} item=${place.item} ended=${isOpen(place) ? false : place.state} isCurrent
    since=${current.since} takesFocus=${takesFocus} onAside=${onAside} />`;
}

/** The keys of the rows. Those of a decision are the detail's; where it has none, a press says why. */
function useKeys({ move, rows, index, current, about, isPage, hasDecision, choose, fold, back }) {
  const once = (run) => (event) => !event.repeat && run();
  const isDecided = about.length > 0 && !about.some(isOpen),
    words = isDecided ? "It is decided already. Press j for the next one." : "Open it first: press Enter.";
  const isSent = about.some(isOpen) && !about.some(waits),
    pointless = { run: () => rows.length && !isSent && tell(words, "refused") };
  useShortcuts({
    j: { label: "The next one (also ↓ in the list)", run: () => move(stepFrom(rows, current, 1, waits)) },
    k: { label: "The one before (also ↑ in the list)", run: () => move(stepFrom(rows, current, -1, waits)) },
    Enter: { label: "Open it, of the list" },
    ...(choose && { x: { label: "Choose it, for one decision of several", run: once(choose) } }),
    ...(rows[index] && (rows[index].places.length > 1 || rows[index].isMember)
      ? { o: { label: "Unfold the group, or fold it (also → and ← in the list)", run: once(() => fold(rows[index])) } }
      : {}),
    ...(isPage && { Escape: { label: "Back to the list", run: back } }),
    ...(hasDecision
      ? {}
      : { a: { ...pointless, label: "Approve it" }, r: { ...pointless, label: "Reject it, with a reason" } }),
  });
}

/** Where the focus goes: with what is current, and it stays in the list, or in the detail, where it is. */
function useFocus(list, { current, isPage, isWide }) {
  useEffect(() => {
    if (isPage) return scrollTo(0, 0);
    const row = list.current?.querySelector("li.current");
    if (!row) return;
    const isLost = document.activeElement === document.body && !isWide;
    if (current.since && (isLost || list.current.contains(document.activeElement)))
      row.querySelector("button").focus({ preventScroll: true });
    if (current.since || isWide) row.scrollIntoView({ block: "nearest" });
  }, [current.key, isPage]);
}

/**
 * The rows and the detail. items: what waits, oldest first. query: of the address; its `open` names what a small window
 * shows. chosen: names of what is chosen; onChoose(items, isChosen): undefined where nothing can be.
 */
export function InboxPanes({ items, query, chosen, onChoose }) {
  const isWide = useMedia(WIDE);
  const [list, isOver, hover] = useHover(),
    detail = useRef(null);
  const [current, choose] = useCurrent();
  const [unfolded, setUnfolded] = useState(new Set());
  const redraw = useRedraw(),
    hasPushed = useRef(false);
  useStore(fates);
  useStore(outcomes);
  const isCurrent = ({ key, group }) => key === current.key || headOf(group) === current.key;
  const places = usePlaces(items, query, (place) => isOver || isOwn(place) || isCurrent(place));
  const rows = sectioned(places.current, unfolded, query),
    about = placesOf(places.current, current.key),
    index = indexOf(rows, current.key);
  const isPage = !isWide && Boolean(query.open) && about.length > 0,
    isShown = isWide || isPage;
  useLettingGo(places.current, redraw);

  const nameAt = (key) => nameOf(placesOf(places.current, key)[0].item);
  const move = (key) => {
    if (key === null) return;
    choose(key, performance.now());
    if (isPage) setQuery({ ...query, open: nameAt(key) });
  };
  const show = (key) => {
    if (key === null) return;
    if (key === current.key && isShown) detail.current.querySelector("article")?.focus();
    else if (isShown) move(key);
    else {
      choose(key, performance.now());
      hasPushed.current = true;
      go("inbox", "", { ...query, open: nameAt(key) });
    }
  };
  const back = () => {
    if (hasPushed.current) history.back();
    else setQuery({ ...query, open: "" });
    hasPushed.current = false;
  };
  const fold = ({ group, isMember }) => {
    const changed = new Set(unfolded);
    if (!changed.delete(group)) changed.add(group);
    setUnfolded(changed);
    if (isMember) move(headOf(group));
  };
  const isSeen = (row) => row.isMember || row.isUnfolded || !areMixed(row.places.map(({ item }) => item));
  // Nobody decides like commands unseen: what is chosen with others of its group has a row of its own.
  const chooseSeen = (items, isChosen) => {
    const names = new Set(items.map(nameOf)),
      unseen = rows.filter((row) => !isSeen(row) && row.places.some(({ item }) => names.has(nameOf(item))));
    if (isChosen) setUnfolded(new Set([...unfolded, ...unseen.map(({ group }) => group)]));
    onChoose(items, isChosen);
  };
  const postpone = () => {
    const open = about.filter(isOpen),
      next = nextAfter(rows, current.key, (place) => waits(place) && !open.includes(place));
    for (const { item } of open) setAside(item);
    const fresh = open.map(({ item, of }) => entry(item, of));
    for (const place of fresh) place.group = fresh[0].group;
    places.current = places.current.map((place) => (open.includes(place) ? { ...place, state: "aside" } : place));
    places.current.push(...fresh);
    redraw();
    move(next);
  };

  const first = rows.map((row) => targetOf(row, waits)).find(Boolean) ?? null;
  useLayoutEffect(() => {
    if (isWide && !about.length && first) choose(first);
  });
  const isDone = about.length > 0 && !about.some(waits) && about.some(({ item }) => fateOf(item)?.state === "taken");
  const next = isDone ? nextAfter(rows, current.key, waits) : null;
  useEffect(() => move(next), [next]);
  useEffect(() => {
    const place = places.current.find((one) => isOpen(one) && nameOf(one.item) === query.open);
    if (place && !about.some(({ item }) => nameOf(item) === query.open)) choose(place.key);
  }, [query.open, items.length > 0]);
  useFocus(list, { current, isPage, isWide });
  const open = about.filter(isOpen).map(({ item }) => item),
    choosable = open.filter((item) => !item.asked && (about.length === 1 || riskOf(item) !== "HIGH"));
  useKeys({
    ...{ move, rows, index, current: current.key, about, isPage, fold, back },
    hasDecision: isShown && about.some(waits),
    choose:
      onChoose && choosable.length
        ? () => chooseSeen(choosable, !choosable.every((item) => chosen.has(nameOf(item))))
        : undefined,
  });
  const isEmpty = !items.length && !rows.length;
  return html`<div class=${isWide && !isEmpty ? "panes" : "paged"} hidden=${isEmpty}>
    <div class="index" data-testid="index" ref=${list} hidden=${isPage} ...${hover}>
      <${InboxRows} all=${items} ...${{ rows, index, query, chosen, show, fold }} onChoose=${onChoose && chooseSeen}
        onStep=${(by) => move(stepFrom(rows, current.key, by, waits))} />
    </div>
    ${
      isShown &&
      html`<section class="detail" ref=${detail} aria-label="What is open">
      ${isPage && html`<${BackToRows} rows=${rows} index=${index} onBack=${back} />`}
      ${
        about.length > 0 &&
        html`<${InboxDetail} about=${about} current=${current} row=${rows[index]} show=${show}
        fold=${fold} onAside=${items.length > open.length ? postpone : undefined} />`
      }
    </section>`
    }
  </div>`;
}
