// Media queries of the window and the system, and their changes.
import { useEffect, useState } from "preact/hooks";

/** Whether a media query matches. The component is drawn again when that changes. */
export function useMedia(query) {
  const media = matchMedia(query);
  const [holds, set] = useState(media.matches);
  useEffect(() => {
    const change = () => set(media.matches);
    change();
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, [query]);
  return holds;
}
