// Server-sent events that go on: after a lost network, a killed worker or a sleep a stream opens again at its cursor.
import { address, call, ticket } from "./api.js";
import { ours } from "./root.js";
import { entered, wanted } from "./session.js";
import { Store } from "./store.js";

/** The streams of this page. */
const streams = new Set();

/**
 * Whether the page is live: "live", "lost" (a stream or the server's store is away), or "offline" (the browser has no
 * network).
 */
export const connection = new Store("live");

/**
 * Since when the page has not been live, in milliseconds: what it shows is from then. 0 while it is live, and at first
 * after that, as most connections come back at once.
 */
export const awaySince = new Store(0);

/** Milliseconds without a live connection after which a person is told. */
const MOMENT = 800;

/** Milliseconds before the next attempt: the first, the longest. */
const FIRST_WAIT = 250,
  LONGEST_WAIT = 5_000;

/** Milliseconds without an event after which a stream opens again: a dead connection tells nobody that it is dead. */
const MOST_SILENCE = 120_000;

/** Milliseconds that an opening may take. */
const MOST_OPENING = 15_000;

/** Milliseconds between two looks at the server and the clock; a longer gap means that the machine slept. */
const TICK = 2_000;

/** Milliseconds after which a server that does not say whether it is ready is away. */
const MOST_LOOKING = 5_000;

/** The lock of the one page of this browser that follows the inbox while it is hidden, for badge and notifications. */
const LOCK = ours("agent-server-inbox");

/** Whether this page holds the lock. A browser has locks where it trusts the address: https, or this machine. */
const isKeeper = new Store(false);

let isAway = false,
  isLooking = false,
  looked = Date.now(),
  seen = Date.now(), // when the page was live last
  telling = 0;

function show() {
  const isLost = isAway || [...streams].some(({ state }) => state === "lost");
  const wasLive = connection.get() === "live";
  connection.set(navigator.onLine === false ? "offline" : isLost ? "lost" : "live");
  if (connection.get() === "live") {
    clearTimeout(telling);
    seen = Date.now();
    awaySince.set(0);
  } else if (wasLive) {
    telling = setTimeout(() => awaySince.set(seen), MOMENT);
  }
}

/** Look at the server now, and open the streams that are lost. */
export function tryNow() {
  look();
  for (const stream of streams) stream.retry();
}

addEventListener("online", show);
addEventListener("offline", show);

/**
 * Look whether the machine slept, and whether the server and its store are there: a stream stays open while the store
 * is away, and a connection may be dead without anybody's being told. Afterwards all streams open at their cursors.
 */
async function look() {
  const slept = Date.now() - looked > 5 * TICK;
  looked = Date.now();
  if (document.hidden || !streams.size || isLooking) return;
  isLooking = true;
  const wasAway = isAway;
  isAway = await call("GET /ready", { signal: AbortSignal.timeout(MOST_LOOKING) }).then(
    () => false,
    () => true,
  );
  isLooking = false;
  if (!isAway && (wasAway || slept)) for (const stream of streams) stream.renew();
  show();
}

setInterval(look, TICK);
navigator.locks?.request(LOCK, () => {
  isKeeper.set(true);
  return new Promise(() => {});
});

/**
 * Follow a stream until the returned function is called. A browser opens six connections to a server, so the streams
 * of a hidden page are closed, and open again at their cursors when it is seen.
 *
 * operation: of the API, a GET whose response is text/event-stream. path, query: as `call` takes them.
 * conversationId: whose stream it is; none for the stream of a list.
 * cursor: {name, value}: the query member that resumes, and the last id that is known, or null.
 * names: of the events. onEvent(name, data, id): each, once. onOpen(): after each opening. parse: makes data of a text.
 * inBackground: "one": one hidden page of this browser goes on; "each": each does, with what ends by itself.
 */
export function follow(operation, options) {
  const stream = new Stream(operation, options);
  return () => stream.end();
}

class Stream {
  #operation;
  #options;
  /** "opening", "live", "lost", or "resting" while the page is hidden. */
  state = "opening";
  #source = null;
  #attempt = 0; // the opening that counts: an earlier one that ends later is dropped
  #wait = FIRST_WAIT;
  #timer = 0;
  #last;
  #silence = 0;
  #end = new AbortController();
  #endings;

  constructor(operation, options) {
    this.#operation = operation;
    this.#options = { onOpen: () => {}, parse: JSON.parse, ...options };
    this.#last = options.cursor.value;
    const { signal } = this.#end,
      settle = () => this.#settle();
    addEventListener("online", () => this.#again(0), { signal });
    addEventListener("offline", () => this.#again(0), { signal });
    document.addEventListener("visibilitychange", settle, { signal });
    this.#endings = [isKeeper.subscribe(settle), entered.subscribe(() => this.#again(0))];
    streams.add(this);
    this.#settle();
  }

  end() {
    this.#end.abort();
    for (const ending of this.#endings) ending();
    this.#close();
    streams.delete(this);
    show();
  }

  /** Open at once, if it waits to open again. */
  retry() {
    if (this.state === "lost") this.#again(0);
  }

  /** Open again at the cursor, if it is open: its connection may be dead. */
  renew() {
    if (this.state === "live") this.#open();
  }

  get #isWanted() {
    const { inBackground } = this.#options;
    return (
      !this.#end.signal.aborted &&
      (!document.hidden || inBackground === "each" || (inBackground === "one" && isKeeper.get()))
    );
  }

  /** Open if the stream is wanted and not there, close it if it is there and not wanted. */
  #settle() {
    if (!this.#isWanted) {
      this.#close();
      this.#note("resting");
    } else if (this.state !== "live") {
      this.#wait = FIRST_WAIT;
      this.#open();
    }
  }

  #note(state) {
    if (this.#end.signal.aborted) return;
    this.state = state;
    show();
  }

  #close() {
    this.#attempt++;
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
  }

  /** Open again after a failure. A page whose key is refused asks the person first, and not the server again. */
  #again(delay = this.#wait) {
    this.#close();
    if (!this.#isWanted) return;
    this.#note("lost");
    if (wanted.get()) return;
    this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT);
    this.#timer = setTimeout(() => this.#open(), delay * (0.75 + Math.random() / 2));
  }

  /** Open at the cursor. The connection that is there goes on until the new one begins. */
  async #open() {
    const attempt = ++this.#attempt,
      isLate = () => attempt !== this.#attempt;
    const { path, query, conversationId, cursor, names, onOpen } = this.#options;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => isLate() || this.#again(), MOST_OPENING);
    let value;
    try {
      value = await ticket(conversationId);
    } catch {
      if (!isLate()) this.#again();
      return;
    }
    if (isLate()) return;
    this.#source?.close();
    const source = new EventSource(
      address(this.#operation, { path, query: { ...query, [cursor.name]: this.#last, ticket: value } }),
    );
    this.#source = source;
    source.onopen = () => {
      if (source !== this.#source) return;
      clearTimeout(this.#timer);
      this.#wait = FIRST_WAIT;
      this.#listen();
      this.#note("live");
      onOpen();
    };
    source.onerror = () => source === this.#source && this.#again();
    for (const name of names)
      source.addEventListener(name, (event) => source === this.#source && this.#take(name, event));
  }

  #take(name, event) {
    this.#listen();
    if (event.lastEventId) this.#last = event.lastEventId;
    this.#options.onEvent(name, event.data === "" ? null : this.#options.parse(event.data), event.lastEventId);
  }

  #listen() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.renew(), MOST_SILENCE);
  }
}
