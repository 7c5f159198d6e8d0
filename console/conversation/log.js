// The part of a conversation's log that the page shows: a window of events in the order of time. Pages extend it at
// either end, the stream at its end; what is beyond the bound goes at the far end, and is fetched again when wanted.
import { call } from "../lib/api.js";
import { Store } from "../lib/store.js";
import { millis } from "../lib/words.js";

/** Events in the window at most; characters of JSON of them; events of the first page, which is to show soon. */
const MOST = 450,
  MOST_CHARACTERS = 32e6,
  FIRST = 50;

/** Milliseconds in which events of the stream are shown together: without filters, and with, which asks the server. */
const TOGETHER = 40,
  ASKED = 200;

/** With a text: events that pass the filters of which the page knows time and kind; requests that look for them. */
const MOST_MATCHES = 2_000,
  MOST_READS = 100;

/** Events of the stream that wait to be shown; beyond it they are fetched as a page. */
const MOST_FRESH = 1_000;

const lengths = new WeakMap();

function length(event) {
  if (!lengths.has(event)) lengths.set(event, JSON.stringify(event).length);
  return lengths.get(event);
}

/** How many events, counted from one end, the window may have. */
function kept(events, fromEnd) {
  let number = 0,
    characters = 0;
  while (number < Math.min(events.length, MOST) && characters < MOST_CHARACTERS) {
    characters += length(events[fromEnd ? events.length - 1 - number : number]);
    number += 1;
  }
  return number;
}

/** `events` with `more` of them at their places in time, each event once. */
function merged(events, more) {
  const ids = new Set(events.map(({ id }) => id));
  const result = [...events];
  for (const event of more) {
    if (ids.has(event.id)) continue;
    ids.add(event.id);
    const time = millis(event.timestamp);
    let place = result.length;
    while (place && millis(result[place - 1].timestamp) > time) place -= 1;
    result.splice(place, 0, event);
  }
  return result;
}

export class Log {
  /**
   * events; older, newer: whether there are some beyond the window; loading: "", "newest", "older", "newer", "around".
   */
  state = new Store({ events: [], older: false, newer: false, loading: "newest", error: null, unseen: 0, focus: null });
  /** The number of events that pass the filters; null before it is known, and with a text, which no route counts. */
  count = new Store(null);
  /**
   * With a text: all that passes the filters, {id, timestamp, kind, source} newest first. isWhole: there are no others.
   */
  matches = new Store({ items: [], isWhole: false });
  /** Whether the person looks at the end: then the window moves on with the log. */
  isFollowed = true;
  #path;
  #filters;
  #fresh = [];
  #timer = 0;
  #controller = new AbortController();
  #ended = new AbortController();

  /** filters: query members of the API, "" or absent where there is none. */
  constructor(conversationId, filters) {
    this.#path = { conversation_id: conversationId };
    this.#filters = Object.values(filters).some(Boolean) ? filters : null;
    if (this.#filters?.text) this.#walk();
    else if (this.#filters) this.#recount();
  }

  close() {
    clearTimeout(this.#timer);
    this.#controller.abort();
    this.#ended.abort();
  }

  /** Show the end of the log. */
  newest() {
    return this.#load("newest", async (signal) => {
      const page = await this.#search({ sort_order: "TIMESTAMP_DESC", limit: FIRST }, signal);
      return { events: page.items.reverse(), older: page.next_page_id !== null, newer: false, unseen: 0, focus: null };
    });
  }

  /** Show the events about a time, with an event in focus: of an id, else the first one at or after the time. */
  around(time, id = null) {
    return this.#load("around", async (signal) => {
      const from = this.#filters?.timestamp__gte,
        until = this.#filters?.timestamp__lt;
      const later = from && millis(from) > millis(time) ? from : time;
      const earlier = until && millis(until) < millis(time) ? until : time;
      const [after, before] = await Promise.all([
        this.#search({ limit: FIRST, timestamp__gte: later }, signal),
        this.#search({ limit: FIRST, timestamp__lt: earlier, sort_order: "TIMESTAMP_DESC" }, signal),
      ]);
      const events = merged(before.items.reverse(), after.items);
      const focus = id ?? (after.items[0] ?? events.at(-1))?.id ?? null;
      return { events, older: before.next_page_id !== null, newer: after.next_page_id !== null, focus };
    });
  }

  /** Show an event of the log, in focus: where it is in the window already, nothing is fetched. */
  reach({ id, timestamp }) {
    const state = this.state.get();
    this.isFollowed = false;
    if (state.events.some((event) => event.id === id)) this.state.set({ ...state, focus: id });
    else this.around(timestamp, id);
  }

  /** Whether another page fits, so that nothing goes at the far end for it. */
  get hasRoom() {
    return this.state.get().events.reduce((sum, event) => sum + length(event), 0) < MOST_CHARACTERS / 2;
  }

  /** Fetch the page before the window. */
  older() {
    return this.#extend("older", { sort_order: "TIMESTAMP_DESC" }, (state, page) => {
      const events = merged(page.items.reverse(), state.events),
        number = kept(events, false);
      const newer = state.newer || number < events.length;
      return { events: events.slice(0, number), older: page.next_page_id !== null, newer };
    });
  }

  /** Fetch the page after the window. */
  newer() {
    return this.#extend("newer", {}, (state, page) => {
      const events = merged(state.events, page.items),
        number = kept(events, true);
      const newer = page.next_page_id !== null;
      return { events: events.slice(-number), older: state.older || number < events.length, newer };
    });
  }

  /** Try again what failed. */
  again() {
    const { error } = this.state.get();
    if (!error) return null;
    this.state.set({ ...this.state.get(), error: null });
    return error.of === "older" ? this.older() : error.of === "newer" ? this.newer() : this.newest();
  }

  /** Take an event that the stream brought. */
  take(event) {
    if (this.#fresh.length < MOST_FRESH) this.#fresh.push(event);
    this.#timer ||= setTimeout(() => this.#flush(), this.#filters ? ASKED : TOGETHER);
  }

  async #flush() {
    this.#timer = 0;
    if (this.state.get().loading) return; // #load calls again
    const fresh = this.#fresh;
    this.#fresh = [];
    if (!fresh.length) return;
    if (!this.#filters) return this.#append(fresh, fresh.length >= MOST_FRESH);
    this.#recount();
    if (this.state.get().newer && !this.#filters.text) return;
    const first = fresh.reduce(
      (least, { timestamp }) => (millis(timestamp) < millis(least) ? timestamp : least),
      fresh[0].timestamp,
    );
    const from = this.#filters.timestamp__gte;
    await this.#load("", async (signal) => {
      const page = await this.#search({ timestamp__gte: from && millis(from) > millis(first) ? from : first }, signal);
      if (this.#filters.text) this.#note(page.items);
      return this.#appended(page.items, page.next_page_id !== null);
    });
  }

  #append(fresh, isPart) {
    this.state.set({ ...this.state.get(), ...this.#appended(fresh, isPart) });
  }

  /** The window with events at its end. isPart: more follow that are not among them. */
  #appended(fresh, isPart) {
    const { events, older, newer, unseen } = this.state.get();
    const seen = (number) => (this.isFollowed ? 0 : unseen + number);
    if (newer) return { unseen: seen(fresh.length) };
    const inWindow =
      older && events.length ? fresh.filter((event) => millis(event.timestamp) >= millis(events[0].timestamp)) : fresh;
    const all = merged(events, inWindow),
      number = kept(all, true);
    const added = all.length - events.length;
    // a person who reads further up keeps the rows there: the end of the log is fetched when they come to it
    if (!this.isFollowed && number < all.length) return { newer: true, unseen: seen(added) };
    return {
      events: all.slice(-number || all.length),
      older: older || number < all.length,
      newer: isPart,
      unseen: seen(added),
    };
  }

  #extend(loading, query, change) {
    const { events, loading: present } = this.state.get();
    if (present || !events.length) return null;
    const edge = (loading === "older" ? events[0] : events.at(-1)).id;
    return this.#load(loading, async (signal) =>
      change(
        this.state.get(),
        await this.#search({ ...query, page_id: edge }, signal, new Set(events.map(({ id }) => id))),
      ),
    );
  }

  async #load(loading, change) {
    this.#controller.abort();
    const controller = (this.#controller = new AbortController());
    this.state.set({ ...this.state.get(), loading: loading || "live", error: null });
    try {
      const changed = await change(controller.signal);
      if (!controller.signal.aborted) this.state.set({ ...this.state.get(), ...changed, loading: "" });
    } catch (fault) {
      if (!controller.signal.aborted)
        this.state.set({ ...this.state.get(), loading: "", error: Object.assign(fault, { of: loading }) });
    }
    if (!controller.signal.aborted) this.#flush();
  }

  /**
   * A page that has an event beyond the known ones, or is the last: by a text the server searches a part of the log at
   * a time.
   */
  async #search(query, signal, known = new Set()) {
    const all = { limit: 100, ...this.#filters, ...query };
    const next = () =>
      call("GET /api/conversations/{conversation_id}/events/search", { path: this.#path, query: all, signal });
    let page = await next();
    while (page.next_page_id !== null && page.items.every(({ id }) => known.has(id))) {
      all.page_id = page.next_page_id;
      page = await next();
    }
    return page;
  }

  /** Look for all that has the text, from the end of the log on. */
  async #walk() {
    const query = { ...this.#filters, sort_order: "TIMESTAMP_DESC", limit: 100 };
    try {
      for (let reads = 0; reads < MOST_READS && this.matches.get().items.length < MOST_MATCHES; reads += 1) {
        const page = await call("GET /api/conversations/{conversation_id}/events/search", {
          path: this.#path,
          query,
          signal: this.#ended.signal,
        });
        this.#note(page.items, page.next_page_id === null);
        if (page.next_page_id === null) return;
        query.page_id = page.next_page_id;
      }
    } catch {
      // the number says that there may be more
    }
  }

  #note(events, isWhole = this.matches.get().isWhole) {
    const known = new Map(this.matches.get().items.map((item) => [item.id, item]));
    for (const { id, timestamp, kind, source } of events) known.set(id, { id, timestamp, kind, source });
    const items = [...known.values()].sort((one, other) => millis(other.timestamp) - millis(one.timestamp));
    this.matches.set({ items, isWhole });
  }

  #recount() {
    if (this.#filters.text) return;
    const request = { path: this.#path, query: this.#filters, signal: this.#ended.signal };
    call("GET /api/conversations/{conversation_id}/events/count", request).then(
      (number) => this.count.set(number),
      () => {},
    );
  }
}
