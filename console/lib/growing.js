// Lists that are drawn in parts: all rows at once would block the page.
import { useEffect, useState } from "preact/hooks";

/** A number that grows to `to`, by `by` in each frame. */
export function useGrowing(to, by) {
  const [number, setNumber] = useState(Math.min(to, by));
  useEffect(() => {
    if (number >= to) return undefined;
    const frame = requestAnimationFrame(() => setNumber(Math.min(to, number + by)));
    return () => cancelAnimationFrame(frame);
  }, [number, to]);
  return Math.min(number, to);
}
