// The changed files of a review, read one after the other, and which of them a person has ticked.
import { useEffect, useMemo, useState } from "preact/hooks";
import { read as readOnce, readAhead } from "./ahead.js";
import { OF_AGENT } from "./comments.js";
import { countsOf, linesOf } from "./review.js";

const CHANGES = "GET /api/v1/app-conversations/{conversation_id}/git/changes",
  DIFF = "GET /api/v1/app-conversations/{conversation_id}/git/diff";

/** Maximum number of files that are read before a person opens them, and of concurrent reads after the first file. */
const MOST_READ = 100,
  READ_TOGETHER = 3;

/** Characters of a file that are searched for a zero byte or invalid UTF-8: a file that has one is not text. */
const LOOKED = 8_000;

/**
 * A change as it is reviewed: {before, after, isBinary, lines, isAligned, counts}; before, after: null where there is
 * none.
 */
function reviewed({ original: before, modified: after }) {
  const isBinary = [before, after].some((text) => /[\0\ufffd]/.test(text?.slice(0, LOOKED) ?? ""));
  if (isBinary) return { before, after, isBinary };
  const { lines, isAligned } = linesOf(before ?? "", after ?? "");
  return { before, after, isBinary, lines, isAligned, counts: countsOf(lines) };
}

const ofList = (id, moments) => ({ path: { conversation_id: id }, query: { path: ".", ...moments } }),
  ofFile = (id, path, moments) => ({ path: { conversation_id: id }, query: { path, ...moments } });

/** The changed files between two moments: [{path, status}], without those of the agent itself. Throws ApiError. */
export async function readList(id, moments, signal) {
  return ours(await readOnce(CHANGES, { ...ofList(id, moments), signal }));
}

const ours = (list) => list.filter(({ path }) => !path.startsWith(`${OF_AGENT}/`));

/**
 * Read the list of changes and its first file before a person asks for them. No sandbox is woken: moments has `since`.
 */
export async function prepare(id, moments) {
  const [first] = ours(await readAhead(CHANGES, ofList(id, moments)));
  if (first) await readAhead(DIFF, ofFile(id, first.path, moments));
}

/**
 * The files by path, and what reads one: {files, read(path)}, a promise of the file. list: what has changed. Another
 * list is read anew. moments: the query of the list.
 */
export function useFiles(id, list, moments) {
  const [files, setFiles] = useState({});
  const round = useMemo(() => ({ ending: new AbortController(), reading: new Map() }), [list]);
  const { signal } = round.ending;
  const load = async (path) => {
    let file;
    try {
      file = reviewed(await readOnce(DIFF, { ...ofFile(id, path, moments), signal }));
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
    const paths = list
      .slice(0, MOST_READ)
      .map(({ path }) => path)
      [Symbol.iterator]();
    const readOn = async () => {
      for (let next = paths.next(); !next.done && !signal.aborted; next = paths.next()) await read(next.value);
    };
    const readAll = async () => {
      const { value: first } = paths.next();
      if (first !== undefined) await read(first); // alone: its lines are what a person sees first
      for (let lane = 0; lane < READ_TOGETHER; lane++) readOn();
    };
    readAll();
    return () => round.ending.abort();
  }, [list]);
  return { files, read };
}

/** Hash a text, to notice a change of it. Source: FNV-1a, 32 bits */
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
      // the browser stores nothing: the ticks last until the person leaves the page
    }
  };
  const isViewed = (path, file) => Boolean(viewed[path] && file?.counts) && viewed[path] === version(file);
  return /** @type {const} */ ([isViewed, set]);
}
