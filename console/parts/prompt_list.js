// Prompts, one below the other: none moves by itself under the hand or the eye of a person.
import { useEffect, useRef, useState } from "preact/hooks";
import { fates } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { byAge, nameOf } from "../lib/pending.js";
import { ours } from "../lib/root.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { tell } from "./notices.js";
import { Prompt } from "./prompt.js";

/** Prompts that are drawn at first, and with each press of "show more"; most ended ones that keep their place. */
const DRAWN = 30,
  MOST_ENDED = 60;

/** Milliseconds for which a person's own decision keeps its place in any case, so that its result can be read. */
const READ = 10_000;

/** The names of what was set aside, for the session of the browser. */
const ASIDE = ours("agent-server-aside"),
  MOST_ASIDE = 500;

function aside() {
  return JSON.parse(sessionStorage.getItem(ASIDE) ?? "[]");
}

function setAside(item) {
  const names = aside().filter((name) => name !== nameOf(item));
  sessionStorage.setItem(ASIDE, JSON.stringify([...names, nameOf(item)].slice(-MOST_ASIDE)));
}

let entries = 0;

/** A place in the list. state: "open", "ended", or "aside": the item has a later place now. */
function entry(item) {
  return { key: `${nameOf(item)} ${entries++}`, item, state: "open" };
}

/**
 * The places after a change: none moves, what came stands below, what ended keeps its place while it is held.
 *
 * isHere: where nothing waits any more, what comes takes the place of what ended, which the talk above shows: below it,
 * it would be out of sight. passes(item), order(a, b): of what comes.
 */
function merged(places, items, { isHeld, isHere, passes, order }) {
  const waiting = new Map(items.map((item) => [nameOf(item), item]));
  const kept = places.map((place) => {
    const item = waiting.get(nameOf(place.item));
    if (place.state === "open" && item) waiting.delete(nameOf(item));
    return place.state === "open" ? { ...place, item: item ?? place.item, state: item ? "open" : "ended" } : place;
  });
  const later = aside(),
    rank = (item) => later.indexOf(nameOf(item));
  const fresh = [...waiting.values()]
    .filter(passes)
    .sort((a, b) => rank(a) - rank(b) || order(a, b))
    .map(entry);
  const isNext = isHere && fresh.length > 0 && !kept.some(({ state }) => state === "open");
  const held = isNext ? [] : kept.filter((place) => place.state === "open" || isHeld(place));
  const surplus = held.filter(({ state }) => state !== "open").slice(0, -MOST_ENDED);
  return [...held.filter((place) => !surplus.includes(place)), ...fresh];
}

/** The places in another order, or of other items: what stays has its old place's key, and so what was begun in it. */
function anew(places, items, how) {
  const before = new Map(places.filter(({ state }) => state === "open").map((place) => [nameOf(place.item), place]));
  return merged([], items, how).map((place) => before.get(nameOf(place.item)) ?? place);
}

/** Whether a person decided it here a moment ago. */
function isOwn({ item }) {
  return Date.now() - (fates.get().get(nameOf(item))?.at ?? 0) < READ;
}

/** Whether the pointer rests over an element. A finger rests there until it touches elsewhere. */
function useHover() {
  const element = useRef(null);
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const touch = (event) => event.pointerType === "touch" && setOver(element.current.contains(event.target));
    addEventListener("pointerdown", touch);
    return () => removeEventListener("pointerdown", touch);
  }, []);
  const move = () => setOver(true);
  const leave = (event) => event.pointerType !== "touch" && setOver(false);
  return /** @type {const} */ ([element, isOver, { onPointerEnter: move, onPointerMove: move, onPointerLeave: leave }]);
}

/** The prompt that the keyboard means: {key, since}; since: when a key chose it, 0 where it got the focus. */
function useCurrent() {
  const [current, set] = useState({ key: null, since: 0 });
  const choose = (key, since = 0) => key !== current.key && set({ key, since });
  return /** @type {const} */ ([current, choose]);
}

/** Focus a place and bring it into view. */
function reveal(list, key) {
  const element = list?.querySelector(`[data-key="${CSS.escape(key)}"] > article`);
  if (!element) return;
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block: element.offsetHeight > innerHeight ? "start" : "nearest" });
}

const ALL = () => true;

/**
 * Pending actions as prompts. items: oldest first. isHere: they are of the conversation whose view this is.
 *
 * chosen: names of those that are chosen; onChoose(items, isChosen): undefined where none can be.
 * passes(item), order(a, b): which of the items are shown, and how; scope: what names the two. Where it changes, the
 * places are made anew. index({places, current, show}): what stands beside the prompts, if anything.
 */
export function PromptList({
  items,
  isHere = false,
  chosen,
  onChoose,
  passes = ALL,
  order = byAge,
  scope = "",
  index,
}) {
  const [list, isOver, hover] = useHover();
  const [current, choose] = useCurrent();
  const [most, setMost] = useState(DRAWN);
  const places = useRef([]),
    drawnScope = useRef(scope),
    [, redraw] = useState(0);
  const isHeld = (place) => isOver || isOwn(place) || (!isHere && place.key === current.key);
  places.current = (scope === drawnScope.current ? merged : anew)(places.current, items, {
    isHeld,
    isHere,
    passes,
    order,
  });
  drawnScope.current = scope;
  const isOpen = ({ state }) => state === "open";
  let left = most;
  const drawn = places.current.filter((place) => left > 0 && (!isOpen(place) || left-- > 0));
  const open = drawn.filter(isOpen),
    hidden = places.current.filter(isOpen).length - open.length;
  const hasEnded = !places.current.every(isOpen);
  useEffect(() => {
    const timer = hasEnded && setInterval(() => redraw((number) => number + 1), READ);
    return () => clearInterval(timer);
  }, [hasEnded]);
  const postpone = (place) => {
    setAside(place.item);
    places.current = [
      ...places.current.map((one) => (one === place ? { ...one, state: "aside" } : one)),
      entry(place.item),
    ];
    redraw((number) => number + 1);
  };
  const show = (place) => {
    const at = places.current.filter(isOpen).findIndex(({ key }) => key === place.key);
    setMost(Math.max(most, at + 1));
    if (place.key === current.key) reveal(list.current, place.key);
    else choose(place.key, performance.now());
  };
  const step = (by) => {
    const all = places.current,
      at = all.findIndex(({ key }) => key === current.key);
    const next = by > 0 ? all.slice(at + 1).find(isOpen) : all.slice(0, Math.max(0, at)).findLast(isOpen);
    if (next) show(next);
    else if (open.length === 1 && open[0].key === current.key) reveal(list.current, current.key);
  };
  useEffect(() => current.key && reveal(list.current, current.key), [current.key]);
  const pointless = { label: "", run: () => open.length && tell("Choose a prompt first: press j.") };
  const isChosenOpen = open.some(({ key }) => key === current.key);
  useShortcuts({
    j: { label: "The next prompt", run: () => step(1) },
    k: { label: "The prompt before", run: () => step(-1) },
    ...(isChosenOpen
      ? {}
      : { a: { ...pointless, label: "Approve the prompt" }, r: { ...pointless, label: "Reject it, with a reason" } }),
  });
  return html`${index?.({ places: places.current, current: current.key, show })}<div class="prompts" ref=${list} ...${hover}>
    ${drawn.map(
      (place) => html`<div key=${place.key} data-key=${place.key}>
        <${Prompt}
          item=${place.item}
          ended=${place.state === "open" ? false : place.state}
          isHere=${isHere}
          isBrief=${isHere && open.length === 0}
          isCurrent=${place.key === current.key}
          since=${current.since}
          onFocus=${() => choose(place.key)}
          onAside=${items.length > 1 ? () => postpone(place) : undefined}
          isChosen=${chosen?.has(nameOf(place.item)) ?? false}
          onChoose=${onChoose && ((isChosen) => onChoose([place.item], isChosen))}
        />
      </div>`,
    )}
    ${
      hidden > 0 &&
      html`<p class="more"><button type="button" class="secondary" data-testid="show-more"
      onClick=${() => setMost(most + DRAWN)}>Show ${Math.min(DRAWN, hidden)} more (${hidden} wait below)</button></p>`
    }
  </div>`;
}
