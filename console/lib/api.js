// The public API. An operation is named as the OpenAPI document names it: "GET /api/v1/sandboxes/{sandbox_id}/logs".
import { ROOT } from "./root.js";
import { key, wanted } from "./session.js";

/** A request that failed. status: 0 where no response came; detail: words, from the server where it sent some. */
export class ApiError extends Error {
  constructor(status, detail, body = null) {
    super(detail);
    this.status = status;
    this.body = body;
  }
}

/** Timeout of a request, in milliseconds. */
const TIMEOUT = 30_000;

/** Error of a truncated response. */
const BROKEN = "The connection broke before the whole response had come.";

/** The address of an operation. path and query: by name; a query value of null, undefined or "" is left out. */
export function address(operation, { path = {}, query = {} } = {}) {
  const template = ROOT + operation.split(" /")[1];
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(path[name]));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") search.append(name, one);
    }
  }
  return search.size ? `${filled}?${search}` : filled;
}

/**
 * Send a request; the parsed JSON of the response, or its text. asKey: with another key. isLong: without a timeout.
 * once: of a POST, a value of newKey() with which it has one effect. file: a File that is sent in the place of a body.
 * Throws ApiError.
 */
export async function call(operation, options = {}) {
  const response = await send(operation, options);
  const isJson = (response.headers.get("Content-Type") ?? "").startsWith("application/json");
  return read(response, isJson ? "json" : "text");
}

/**
 * Save what a GET responds with as a file. Throws ApiError.
 * @param {string} operation
 * @param {{path?: object, query?: object, name: string}} options
 */
export async function download(operation, { path, query, name }) {
  const response = await send(operation, { path, query, isLong: true });
  save(await read(response, "blob"), name);
}

/** What a GET responds with, piece by piece as it comes. signal: ends it. Throws ApiError, and what the signal has. */
export async function* pieces(operation, { path, signal }) {
  const reader = (await send(operation, { path, signal, isLong: true })).body.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } catch (fault) {
    if (signal.aborted) throw fault;
    throw new ApiError(0, BROKEN);
  }
}

/** Save a Blob as a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A ticket, which opens one stream within 30 seconds: of a conversation, or without one of a list. Throws ApiError. */
export async function ticket(conversationId) {
  const body = conversationId ? { conversation_id: conversationId } : {};
  return (await call("POST /api/v1/tickets", { body: { ...body, scopes: ["read"] } })).ticket;
}

/** Make an idempotency key, for `once`: a POST with it has one effect, however often it is sent. */
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string} operation
 * @param {Record<string, any>} options
 */
async function send(operation, { path, query, body, file, signal, asKey, isLong = false, once }) {
  const shown = asKey ?? key.get(),
    headers = shown ? { "X-Session-API-Key": shown } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (once) headers["Idempotency-Key"] = once;
  const signals = [signal, isLong ? null : AbortSignal.timeout(TIMEOUT)].filter(Boolean);
  const request = {
    method: operation.split(" ")[0],
    headers,
    body: file ? form(file) : body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.any(signals),
  };
  let response;
  try {
    response = await fetch(address(operation, { path, query }), request);
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new ApiError(0, "The server does not respond.");
  }
  if (response.ok) return response;
  const fault = await failure(response);
  // a person may have entered another key meanwhile
  if (fault.status === 401 && shown === key.get())
    wanted.set(shown ? "The server does not know this key, or knows it no longer." : "The server needs a key.");
  throw fault;
}

function form(file) {
  const found = new FormData();
  found.set("file", file);
  return found;
}

async function read(response, how) {
  try {
    return await response[how]();
  } catch {
    throw new ApiError(0, BROKEN);
  }
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, words(body?.detail) || `The server responded with ${response.status}.`, body);
}

/** A `detail` in words: a sentence, or what is wrong with each member of a request. */
function words(detail) {
  if (typeof detail === "string") return detail;
  if (!Array.isArray(detail)) return "";
  return detail
    .map(({ loc = [], msg }) => [loc.filter((part) => part !== "body").join("."), msg].filter(Boolean).join(": "))
    .join("; ");
}
