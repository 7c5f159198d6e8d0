// What is read of the API: once, or again every few seconds. After a failure it is read again by itself.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { call } from "./api.js";
import { connection } from "./live.js";

/** Milliseconds before the next try after a failure: the first, the longest. */
const FIRST_WAIT = 3_000,
  LONGEST_WAIT = 60_000;

/** Whether a later try may succeed: no response came (status 0), or that of a server that cannot serve now. */
const mayPass = (error) => error?.status === 0 || error?.status >= 500;

/** Call `again` after a failure that may pass: once the connection is live again, and meanwhile ever more seldom. */
export function useAgain(error, again) {
  const latest = useRef(again),
    wait = useRef(FIRST_WAIT);
  latest.current = again;
  useEffect(() => {
    if (!mayPass(error)) {
      if (!error) wait.current = FIRST_WAIT;
      return undefined;
    }
    const timer = setTimeout(() => latest.current(), wait.current);
    wait.current = Math.min(2 * wait.current, LONGEST_WAIT);
    const end = connection.subscribe((state) => state === "live" && latest.current());
    return () => {
      clearTimeout(timer);
      end();
    };
  }, [error]);
}

/**
 * What the API has: {value, error, again}.
 *
 * value: the latest, undefined before the first; it stays after a failure. error: of the last read, or null. again():
 * reads it now.
 * source: an operation, a function of an AbortSignal, or null to read nothing. path, query: of an operation.
 * every: seconds after a response until the next read, while the page is visible; 0 for one read.
 * key: with another one the value is forgotten. version: with another one it is read again, and the value stays.
 */
export function useRead(
  source,
  {
    path = undefined,
    query = undefined,
    every = 0,
    key = /** @type {any} */ (""),
    version = /** @type {any} */ (0),
  } = {},
) {
  const name = typeof source === "function" ? "" : JSON.stringify([source, path, query]);
  const [state, setState] = useState(/** @type {any} */ ({ error: null }));
  const latest = useRef(null),
    start = useRef(() => {});
  latest.current = typeof source === "function" ? source : (signal) => call(source, { path, query, signal });
  const isOurs = state.key === key && state.name === name,
    isNone = source === null;
  useEffect(() => {
    if (isNone) return undefined;
    let end = null,
      timer = 0;
    const read = async () => {
      clearTimeout(timer);
      end?.abort();
      const { signal } = (end = new AbortController());
      const take = (next) => {
        if (signal.aborted) return;
        end = null;
        setState((before) => ({ ...(before.key === key && before.name === name ? before : {}), key, name, ...next }));
        if (every) timer = setTimeout(poll, every * 1000);
      };
      await latest.current(signal).then(
        (value) => take({ value, error: null }),
        (error) => take({ error }),
      );
    };
    const poll = () => document.hidden || end || read();
    start.current = read;
    if (every) document.addEventListener("visibilitychange", poll);
    every ? poll() : read();
    return () => {
      document.removeEventListener("visibilitychange", poll);
      clearTimeout(timer);
      end?.abort();
    };
  }, [isNone, every, key, name, version]);
  const error = isOurs ? state.error : null;
  useAgain(every ? null : error, () => start.current());
  const again = useCallback(() => {
    setState((before) => ({ ...before, error: null }));
    start.current();
  }, []);
  return { value: isOurs ? state.value : undefined, error, again };
}
