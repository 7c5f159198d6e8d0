// What no stream tells: asked for again every few seconds, while the page is visible.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

/**
 * What `read(signal)` resolves to, read again `seconds` after each response: {value, error, again}.
 *
 * value: the latest, undefined before the first; it stays after a failure. error: of the last read, or null.
 * key: with another one the value is forgotten.
 */
export function usePolled(read, seconds, key = "") {
  const [state, setState] = useState(/** @type {{ error: any, key?: string, value?: any }} */ ({ error: null }));
  const latest = useRef(read);
  latest.current = read;
  const start = useRef(() => {});
  useEffect(() => {
    const end = new AbortController();
    let timer = 0,
      isReading = false;
    const ask = async () => {
      clearTimeout(timer);
      if (isReading || document.hidden) return;
      isReading = true;
      try {
        const value = await latest.current(end.signal);
        if (!end.signal.aborted) setState({ key, value, error: null });
      } catch (error) {
        if (!end.signal.aborted) setState((before) => ({ ...before, error }));
      }
      isReading = false;
      if (!end.signal.aborted) timer = setTimeout(ask, seconds * 1000);
    };
    start.current = ask;
    document.addEventListener("visibilitychange", ask, { signal: end.signal });
    ask();
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [seconds, key]);
  const again = useCallback(() => start.current(), []);
  return { value: state.key === key ? state.value : undefined, error: state.error, again };
}
