// What the window and the system are like, as it changes.
import { useEffect, useState } from "preact/hooks";

/** Whether a media query holds, in a component, which is drawn again when that changes. */
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
