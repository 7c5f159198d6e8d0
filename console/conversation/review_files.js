// The changed files of a review, read one after the other, and which of them a person has ticked.
import { useEffect, useMemo, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { countsOf, linesOf } from "./review.js";

const DIFF = "GET /api/v1/app-conversations/{conversation_id}/git/diff";

/** Files that are read before somebody opens them. */
const MOST_READ = 100;

/** Characters of a file in which a zero byte, or what is no UTF-8, says that it is no text. */
const LOOKED = 8_000;

/** A change as it is reviewed: {before, after, isBinary, lines, isAligned, counts}; before, after: null where there is none. */
function reviewed({ original: before, modified: after }) {
  const isBinary = [before, after].some((text) => /[\0\ufffd]/.test(text?.slice(0, LOOKED) ?? ""));
  if (isBinary) return { before, after, isBinary };
  const { lines, isAligned } = linesOf(before ?? "", after ?? "");
  return { before, after, isBinary, lines, isAligned, counts: countsOf(lines) };
}

/**
 * The files by path, and what reads one: {files, read(path)}, a promise of the file. list: what has changed. Another list
 * is read anew. moments: the query of the list.
 */
export function useFiles(id, list, moments) {
  const [files, setFiles] = useState({});
  const round = useMemo(() => ({ ending: new AbortController(), reading: new Map() }), [list]);
  const { signal } = round.ending;
  const load = async (path) => {
    let file;
    try {
      const query = { path, ...moments };
      file = reviewed(await call(DIFF, { path: { conversation_id: id }, query, signal }));
    } catch (error) {
      file = { error };
    }
    round.reading.delete(path);
    if (!signal.aborted) setFiles((others) => ({ ...others, [path]: file }));
    return file;
  };
  /** Read a file. A file that opens while it is read waits for the same response. */
  const read = (path) => {
    if (!round.reading.has(path)) round.reading.set(path, load(path));
    return round.reading.get(path);
  };
  useEffect(() => {
    if (!list) return undefined;
    setFiles((old) => Object.fromEntries(list.filter(({ path }) => old[path]).map(({ path }) => [path, old[path]])));
    const readAll = async () => {
      for (const { path } of list.slice(0, MOST_READ)) {
        if (signal.aborted) return;
        await read(path);
      }
    };
    readAll();
    return () => round.ending.abort();
  }, [list]);
  return { files, read };
}

/** A number of a text, to see whether it is another one. Source: FNV-1a, 32 bits */
function digest(text) {
  let hash = 0x811c9dc5;
  for (let place = 0; place < text.length; place++) hash = Math.imul(hash ^ text.charCodeAt(place), 0x01000193);
  return hash >>> 0;
}

const version = ({ before, after }) => `${digest(before ?? "")} ${digest(after ?? "")}`;

/** Which files are ticked: [isViewed(path, file), setViewed(path, file, is)]; a file that has changed since is not. */
export function useViewed(id) {
  const name = `agent-server-viewed-${id}`;
  const [viewed, setState] = useState(() => {
    try {
      return JSON.parse(sessionStorage.getItem(name) ?? "{}");
    } catch {
      return {};
    }
  });
  const set = (path, file, is) => {
    const { [path]: _, ...others } = viewed,
      next = is ? { ...others, [path]: version(file) } : others;
    setState(next);
    try {
      sessionStorage.setItem(name, JSON.stringify(next));
    } catch {
      // the browser keeps nothing: they are ticked until the page is left
    }
  };
  return /** @type {const} */ ([(path, file) => Boolean(file?.counts) && viewed[path] === version(file), set]);
}
