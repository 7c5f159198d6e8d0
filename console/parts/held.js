// What holds the places of a list: the pointer over it, and a person's own decision of a moment ago.
import { useEffect, useRef, useState } from "preact/hooks";
import { fateOf } from "../lib/decide.js";
import { isOpen } from "../lib/places.js";

/** Milliseconds for which a person's own decision keeps its place in any case, so that its result can be read. */
const READ = 10_000;

/** Whether a person decided it here a moment ago. */
export function isOwn({ item }) {
  return Date.now() - (fateOf(item)?.at ?? 0) < READ;
}

/** Whether the pointer rests over an element. A finger rests there until it touches elsewhere. */
export function useHover() {
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

/** Draw again now and then while some places have ended, until the last of them is let go. redraw(): draws again. */
export function useLettingGo(places, redraw) {
  const hasEnded = !places.every(isOpen);
  useEffect(() => {
    const timer = hasEnded && setInterval(redraw, READ);
    return () => clearInterval(timer);
  }, [hasEnded]);
}

/** What is current, of a list: {key, since}; since: when a key or a press chose it, 0 where nobody did. */
export function useCurrent() {
  const [current, set] = useState({ key: null, since: 0 });
  const choose = (key, since = 0) => key !== current.key && set({ key, since });
  return /** @type {const} */ ([current, choose]);
}

/** A function that draws a component again. */
export function useRedraw() {
  const [, redraw] = useState(0);
  return () => redraw((number) => number + 1);
}
