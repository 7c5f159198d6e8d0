// The prompts of a conversation, one below the other: none moves by itself under the hand or the eye of a person.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { entry, isOpen, merged, setAside } from "../lib/places.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { isOwn, useCurrent, useHover, useLettingGo, useRedraw } from "./held.js";
import { tell } from "./notices.js";
import { Prompt } from "./prompt.js";

/** Prompts that are drawn at first, and with each press of "show more". */
const DRAWN = 30;

/** Focus a place and bring it into view. */
function reveal(list, key) {
  const element = list?.querySelector(`[data-key="${CSS.escape(key)}"] > article`);
  if (!element) return;
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block: element.offsetHeight > innerHeight ? "start" : "nearest" });
}

/**
 * Pending actions of one conversation as prompts. items: oldest first. named: id of the action that the address names.
 */
export function PromptList({ items, named }) {
  const [list, isOver, hover] = useHover();
  const [current, choose] = useCurrent();
  const [most, setMost] = useState(DRAWN);
  const places = useRef([]),
    redraw = useRedraw();
  // What comes takes the place of what ended, which the talk above shows: below it, it would be out of sight.
  places.current = merged(places.current, items, { isHeld: (place) => isOver || isOwn(place), isNext: true });
  let left = most;
  const drawn = places.current.filter((place) => left > 0 && (!isOpen(place) || left-- > 0));
  const open = drawn.filter(isOpen),
    hidden = places.current.filter(isOpen).length - open.length;
  useLettingGo(places.current, redraw);
  const postpone = (place) => {
    setAside(place.item);
    places.current = [
      ...places.current.map((one) => (one === place ? { ...one, state: "aside" } : one)),
      entry(place.item),
    ];
    redraw();
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
  const isNamed = Boolean(named) && items.some((item) => item.action_id === named);
  useEffect(() => {
    const place = isNamed && places.current.find((one) => isOpen(one) && one.item.action_id === named);
    if (place) show(place);
  }, [named, isNamed]);
  const pointless = { label: "", run: () => open.length && tell("Choose a prompt first: press j.", "refused") };
  const isChosenOpen = open.some(({ key }) => key === current.key);
  useShortcuts({
    j: { label: "The next prompt", run: () => step(1) },
    k: { label: "The prompt before", run: () => step(-1) },
    ...(isChosenOpen
      ? {}
      : { a: { ...pointless, label: "Approve the prompt" }, r: { ...pointless, label: "Reject it, with a reason" } }),
  });
  return html`<div class="prompts" ref=${list} ...${hover}>
    ${drawn.map(
      (place) => html`<div key=${place.key} data-key=${place.key}>
        <${Prompt}
          item=${place.item}
          ended=${place.state === "open" ? false : place.state}
          isHere
          isBrief=${open.length === 0}
          isCurrent=${place.key === current.key}
          since=${current.since}
          onFocus=${() => choose(place.key)}
          onAside=${items.length > 1 ? () => postpone(place) : undefined}
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
