// A list that is read by pages, newest first, and kept current by a stream. Nothing moves under the pointer or the
// focus.
import { useEffect, useMemo } from "preact/hooks";
import { call } from "./api.js";
import { follow } from "./live.js";
import { Store, useStore } from "./store.js";

/** Items of a page; most that are kept; reads for one page, as the server may end a page early. */
const PAGE = 50,
  MOST = 1_000,
  MOST_READS = 5;

/** Pixels that are still "at the top"; milliseconds after which a first page that failed is read again. */
const TOP = 40,
  AGAIN = 3_000;

/**
 * leaving: "changed" (it does not fit the filters any more) or "deleted", by id: it goes as soon as nothing is held.
 */
const EMPTY = {
  rows: null,
  leaving: new Map(),
  newcomers: 0,
  isStale: false,
  isReading: false,
  hasMore: false,
  isFull: false,
  error: null,
};

/**
 * A list: `view` shows its rows (null before they are known), and what else there is to tell about it.
 *
 * search, stream: operations of the API. query: the filters of `search`.
 * by: the member that orders it, newest first. fits(item): whether a changed item passes the filters.
 */
export class LiveList {
  view = new Store(EMPTY);
  #options;
  #end = null;
  #rows = null;
  #leaving = new Map();
  #newcomers = new Map();
  #next = null;
  #holds = new Set();
  #element = null;
  #meanwhile = [];
  #reads = Promise.resolve();
  #waiting = 0;
  #error = null;
  #retry = 0;
  #isReady = false;

  constructor(options) {
    this.#options = options;
  }

  /** Read the first page and follow the changes. Returns what ends both. */
  open() {
    this.#end = new AbortController();
    const scrolled = () => this.hold("scroll", scrollY > TOP);
    addEventListener("scroll", scrolled, { passive: true, signal: this.#end.signal });
    this.read();
    const unfollow = follow(this.#options.stream, {
      cursor: { name: "last_event_id", value: null },
      names: ["reset", "ready", "changed", "deleted"],
      onEvent: (name, data) => this.#hear(name, data),
    });
    return () => {
      this.#end.abort();
      clearTimeout(this.#retry);
      unfollow();
    };
  }

  /** Read the first page again; later ones that are known stay. isWhole: they do not. */
  read(isWhole = false) {
    return this.#enqueue(null, (items) => {
      const known = new Set(items.map((item) => item.id));
      const later = isWhole || !this.#rows ? [] : this.#rows.slice(PAGE).filter((item) => !known.has(item.id));
      this.#rows = [...items, ...later];
      this.#newcomers = new Map([...this.#newcomers].filter(([id]) => !known.has(id)));
      return later.length > 0;
    });
  }

  /** Read the next page. */
  more() {
    return this.#enqueue(
      () => this.#next,
      (items) => {
        const known = new Set([...this.#rows.map((item) => item.id), ...this.#newcomers.keys()]);
        this.#rows = [...this.#rows, ...items.filter((item) => !known.has(item.id))];
        return false;
      },
    );
  }

  /** Hold what is shown in its place for a reason, such as "pointer", or no longer. element: that of the list. */
  hold(reason, isHeld, element = this.#element) {
    this.#element = element;
    if (isHeld) this.#holds.add(reason);
    else if (this.#holds.delete(reason)) this.#settle();
  }

  /** Show everything that is new, in order. */
  renew() {
    this.#holds.clear();
    this.#settle();
    const { by } = this.#options;
    this.#rows = this.#rows.toSorted((a, b) => (a[by] < b[by] ? 1 : a[by] > b[by] ? -1 : 0));
    this.#show();
  }

  /**
   * Read a page after the reads before it. from(): its cursor. take(items): what becomes of it; whether the old cursor
   * stays.
   */
  #enqueue(from, take) {
    if (this.#waiting === 0) this.#meanwhile = [];
    this.#waiting += 1;
    this.#reads = this.#reads
      .then(() => this.#page(from?.() ?? null, take))
      .finally(() => {
        this.#waiting -= 1;
        this.#show();
      });
    this.#show();
    return this.#reads;
  }

  async #page(start, take) {
    const { signal } = this.#end;
    const found = [];
    let next = start;
    try {
      for (let reads = 0; reads < MOST_READS && found.length < PAGE && (reads === 0 || next); reads++) {
        const query = { ...this.#options.query, limit: PAGE - found.length, page_id: next };
        const page = await call(this.#options.search, { query, signal });
        found.push(...page.items);
        next = page.next_page_id;
      }
    } catch (fault) {
      if (signal.aborted) return;
      this.#error = fault;
      clearTimeout(this.#retry);
      if (start === null) this.#retry = setTimeout(() => this.read(), AGAIN);
      return;
    }
    this.#error = null;
    const keepsCursor = take(found);
    if (!keepsCursor) this.#next = next;
    for (const change of this.#meanwhile) this.#apply(...change); // the page may be older than they are
    this.#settle();
  }

  #hear(name, data) {
    if (name === "reset") return;
    if (name === "ready") {
      this.read(this.#isReady); // a second one: the stream could not go on, so that what is known may be void
      this.#isReady = true;
    } else {
      if (this.#waiting) this.#meanwhile.push([name, data]);
      this.#apply(name, data);
      this.#settle();
    }
  }

  #apply(name, item) {
    const index = this.#rows?.findIndex((row) => row.id === item.id) ?? -1;
    const belongs = name === "changed" && this.#options.fits(item);
    if (index >= 0) {
      if (name === "changed") this.#rows = this.#rows.with(index, item);
      if (belongs) this.#leaving.delete(item.id);
      else this.#leaving.set(item.id, name);
    } else {
      this.#newcomers.delete(item.id);
      if (belongs && this.#rows) this.#newcomers.set(item.id, item);
      if (this.#newcomers.size > MOST) this.#newcomers.delete(this.#newcomers.keys().next().value);
    }
  }

  /** Remove the rows that left and put new rows on top, unless a row would move under the pointer or the focus. */
  #settle() {
    if (!this.#element?.contains(document.activeElement)) this.#holds.delete("focus"); // what had it may be gone
    if (this.#rows && this.#holds.size === 0) {
      const { by } = this.#options;
      const arrived = [...this.#newcomers.values()].sort((a, b) => (a[by] < b[by] ? 1 : -1));
      this.#rows = [...arrived, ...this.#rows.filter((row) => !this.#leaving.has(row.id))].slice(0, MOST);
      this.#newcomers.clear();
      this.#leaving.clear();
    }
    this.#show();
  }

  #show() {
    const rows = this.#rows,
      { by } = this.#options;
    const isFull = rows?.length >= MOST;
    this.view.set({
      rows,
      isFull,
      leaving: new Map(this.#leaving),
      newcomers: this.#newcomers.size,
      isStale: Boolean(rows?.some((row, index) => index > 0 && row[by] > rows[index - 1][by])),
      isReading: this.#waiting > 0,
      hasMore: Boolean(this.#next) && !isFull,
      error: this.#error,
    });
  }
}

/** A list and its present view. key: what the options are made of, as text; with another one another list is read. */
export function useList(options, key) {
  const list = useMemo(() => new LiveList(options), [key]);
  useEffect(() => list.open(), [list]);
  return [list, useStore(list.view)];
}

/** The handlers of the element that shows a list: the pointer or the focus in it holds it. */
export function holding(list) {
  return {
    onPointerEnter: (event) => list.hold("pointer", true, event.currentTarget),
    onPointerLeave: () => list.hold("pointer", false),
    onFocusIn: (event) => list.hold("focus", true, event.currentTarget),
    onFocusOut: ({ currentTarget, relatedTarget }) => {
      // new rows must not come before the press that asks for them
      const isAtHead = relatedTarget?.closest(".list-head");
      if (!isAtHead && !currentTarget.contains(relatedTarget)) list.hold("focus", false);
    },
  };
}
