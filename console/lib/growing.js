// What is drawn bit by bit: all of it at once would hold up the page.
import { useEffect, useState } from "preact/hooks";

/** A number that grows to another one, by so many each frame. */
export function useGrowing(to, by) {
  const [number, setNumber] = useState(Math.min(to, by));
  useEffect(() => {
    if (number >= to) return undefined;
    const frame = requestAnimationFrame(() => setNumber(Math.min(to, number + by)));
    return () => cancelAnimationFrame(frame);
  }, [number, to]);
  return Math.min(number, to);
}
