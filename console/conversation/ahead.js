// Responses that are read before a person asks for them, as when the pointer rests on a button.
import { call } from "../lib/api.js";

/** Milliseconds for which a response may be shown: files change while an agent works. */
const FRESH = 5_000;

/** Requests by their words: {at, response: a promise, isTaken}. One that was taken is not sent again for as long. */
const kept = new Map();

const nameOf = (operation, { path, query }) => JSON.stringify([operation, path, query]);

/** Send a request whose response `read` may take. Rejects as `call` does. */
export function readAhead(operation, options) {
  for (const [name, { at }] of kept) if (Date.now() - at > FRESH) kept.delete(name);
  const name = nameOf(operation, options);
  if (!kept.has(name)) kept.set(name, { at: Date.now(), response: call(operation, options), isTaken: false });
  return kept.get(name).response;
}

/**
 * Take the response that was read ahead, once; otherwise send the request. A response that failed is asked for again.
 * @param {string} operation
 * @param {{path: object, query: object, signal?: AbortSignal}} options
 */
export async function read(operation, { signal, ...options }) {
  const name = nameOf(operation, options),
    known = kept.get(name);
  if (known && !known.isTaken && Date.now() - known.at < FRESH) {
    known.isTaken = true;
    const found = await known.response.catch(() => null);
    signal?.throwIfAborted();
    if (found) return found;
  }
  return call(operation, { ...options, signal });
}
