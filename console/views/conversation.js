// One conversation: what happened, what waits, and what a person says to the agent.
//
// The modules of ../conversation/, from the wire to the page:
//   feed.js       follows the conversation's stream: its record, its new events, what the agent is writing.
//   log.js        a window of the stored events, read by pages as one scrolls, kept current by the feed.
//   rows.js       makes rows of events: an action with its results, the turns of a talk.
//   timeline.js   shows the rows: turn.js one turn, entry.js and event.js one row, content.js a message.
//   filters.js    what of the log is shown, with plot.js (events over time); decisions.js who decided what.
//   heading.js    the title and the buttons; details.js and sandbox.js beside the talk; export.js the file.
//   prompts.js    what waits; composer.js what a person writes; fork.js, here.js and returned.js forks and returns.
//   changes.js    changed files, with review.js and comments.js; files.js, preview.js, terminal.js: the other places.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { isOf, waitingAsks } from "../lib/destinations.js";
import { connection } from "../lib/live.js";
import { pending } from "../lib/pending.js";
import { usePanel } from "../lib/panels.js";
import { remember } from "../lib/recent.js";
import { href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { style } from "../lib/style.js";
import { useSubject } from "../lib/title.js";
import { hostOf } from "../parts/asker.js";
import { FolderOf } from "../parts/file_links.js";
import { Lazy } from "../parts/lazy.js";
import { Empty, Failure, Loading, tell } from "../parts/notices.js";
import { CONVERSATION } from "../parts/state.js";
import { Sought, Text } from "../parts/text.js";
import { Composer } from "../conversation/composer.js";
import { Details } from "../conversation/details.js";
import { Feed } from "../conversation/feed.js";
import { Filters, filtersOf, isFiltered } from "../conversation/filters.js";
import { ReturnDialog, Fork, useForks } from "../conversation/fork.js";
import { Heading, keyOf, placesOf, UNTITLED } from "../conversation/heading.js";
import { Returns } from "../conversation/here.js";
import { Log } from "../conversation/log.js";
import { Prompts, useApp } from "../conversation/prompts.js";
import { Timeline } from "../conversation/timeline.js";

const part = (load) => async () => (await Promise.all([load(), style("work")]))[0];

/** Panels that may replace the timeline, by their names in the address: each loads its module and style. */
const LOADS = {
  changes: part(() => import("../conversation/changes.js")),
  files: part(() => import("../conversation/files.js")),
  preview: part(() => import("../conversation/preview.js")),
  terminal: async () => (await Promise.all([import("../conversation/terminal.js"), style("work"), style("xterm")]))[0],
};

/**
 * Load what a button leads to while the pointer or the focus is on it. Changes are also read, unless others are asked
 * for.
 */
async function prepare(name, id, since = "start") {
  await LOADS[name]();
  if (name !== "changes" || since !== "start") return;
  const { prepare: readChanges } = await import("../conversation/review_files.js");
  await readChanges(id, { since });
}

/** Shortcuts to the talk and to the panels that may replace it: {key: {label, run}}. */
const keysTo = (places, lead) => ({
  1: { label: "Show the talk", run: () => lead("") },
  ...Object.fromEntries(
    places.map((one) => [keyOf(one.name), { label: `Show ${one.label}`, run: () => lead(one.name) }]),
  ),
});

/** The filtered window of the log. null until the stream has begun. */
function useLog(feed, id, query, isBegun) {
  const filters = filtersOf(query),
    name = JSON.stringify(filters);
  const log = useMemo(() => (isBegun ? new Log(id, filters) : null), [id, name, isBegun]);
  useEffect(() => {
    if (!log) return undefined;
    const ends = [
      feed.subscribe((event) => log.take(event)),
      connection.subscribe((state) => state === "live" && log.again()),
    ];
    return () => {
      for (const end of ends) end();
      log.close();
    };
  }, [log]);
  useEffect(() => void (log && lead(log, id, query)), [log, query.event]);
  return log;
}

/** Show the end of the log, or the event that the address names, which may change later. */
async function lead(log, id, { event: eventId, line }) {
  const { events, loading } = log.state.get();
  if (!eventId) return loading === "newest" && log.newest();
  const known = events.find((one) => one.id === eventId);
  if (known) return line ? null : log.reach(known); // to a line the output leads by itself
  const path = { conversation_id: id, event_id: eventId };
  try {
    const event = await call("GET /api/conversations/{conversation_id}/events/{event_id}", { path });
    return log.around(event.timestamp, event.id);
  } catch {
    tell("The event of this address is not in this conversation.", "failed");
    return log.newest();
  }
}

const same = (one, other) => one.replaceAll("-", "").toLowerCase() === other.replaceAll("-", "").toLowerCase();

function Gone() {
  return html`<${Empty} isPage title="Conversation not found">
    It was deleted, or the address is wrong. <a href=${href("conversations")}>Show all conversations</a>
  <//>`;
}

/** Replaces the composer of an agent outside of sandboxes. of: `external` of the conversation. */
function Elsewhere({ of }) {
  return html`<p class="elsewhere" data-testid="elsewhere">
    This agent runs in a terminal of <strong><${Text} text=${hostOf(of)} />
      </strong>: talk to it there. What it asks waits here and in the inbox.
  </p>`;
}

export default function ConversationView({ place: { id, query } }) {
  const feed = useMemo(() => new Feed(id), [id]);
  useEffect(() => feed.open(), [feed]);
  const record = useStore(feed.record),
    total = useStore(feed.total),
    fault = useStore(feed.fault),
    gone = useStore(feed.gone);
  const writing = useStore(feed.writing),
    all = useStore(pending),
    asking = useStore(waitingAsks),
    app = useApp(id);
  const details = usePanel("details"),
    wire = usePanel("wire"),
    [areOpen, setOpen] = usePanel("filters");
  const hasFilters = isFiltered(query),
    [hasDetails, setDetails] = details,
    [hadFilters, setHad] = useState(hasFilters);
  useEffect(() => void (hasFilters && setHad(true)), [hasFilters]);
  const [forked, setForked] = useState(null);
  const fork = useMemo(
    () =>
      may("write") && !record?.external
        ? (/** @type {any} */ event = undefined, isBack = false) => setForked({ event, isBack })
        : undefined,
    [may("write"), Boolean(record?.external)],
  );
  const forks = useForks(id, record?.execution_status, total);
  const log = useLog(feed, id, query, total !== null);
  const items = useMemo(() => (all ?? []).filter((item) => same(item.conversation_id, id)), [all, id]);
  const waiting = useMemo(() => new Set(items.map((item) => item.action_id)), [items]);
  const places = placesOf(record),
    shown = places.find((one) => one.name === query.show)?.name ?? "";
  const show = (name) => setQuery({ ...query, show: name, file: "", line: "" }, true);
  // the press reports a failure
  const ahead = (name) => void (name !== shown && prepare(name, id, query.since).catch(() => {}));
  const isLed = useRef(false),
    lead = (name) => (isLed.current = shown !== name) && show(name);
  useEffect(() => {
    if (isLed.current)
      /** @type {HTMLElement} */ (document.querySelector(shown ? ".place" : ".timeline"))?.focus({
        preventScroll: true,
      });
    isLed.current = false;
  }, [shown]);
  useShortcuts({
    ...keysTo(places, lead),
    d: { label: "Show or hide the details", run: () => setDetails(!hasDetails) },
    "/": {
      label: "Search the conversation",
      run: () => (
        shown && show(""),
        setOpen(true),
        setTimeout(() => /** @type {HTMLElement} */ (document.querySelector("[data-search]"))?.focus())
      ),
    },
  });
  const of = { id: record?.id, sandbox_id: app?.sandbox_id };
  const asks = record ? (asking ?? []).filter((item) => isOf(item, of)).length : 0,
    number = items.length + asks,
    title = record ? record.title || UNTITLED : "Conversation";
  useSubject(title, number ? `Waiting (${number})` : (CONVERSATION[record?.execution_status]?.[0] ?? ""), number);
  useEffect(() => {
    if (record) remember(id, title);
  }, [id, title, Boolean(record)]);
  if (gone) return html`<${Gone} />`;
  if (fault) return html`<${Failure} error=${fault} again=${() => feed.again()} />`;
  if (!record || !log) return html`<${Loading} />`;
  const refresh = () => feed.refresh();
  const reset = () => setQuery({}, true);
  // filters match events, so a filtered log is shown as events
  const filters = [
    areOpen || hasFilters || hadFilters,
    (next) => (setOpen(next), setHad(false), !next && hasFilters && reset()),
  ];
  const status = record.execution_status;
  const toTalk = (open) => (next) => (shown && show(""), open(next)); // they are about the timeline
  const mayReturn = may("write") && forks.canReturn && !["running", "waiting_for_confirmation"].includes(status);
  const folder = places.some(({ name }) => name === "files") ? id : "";
  return html`<${Returns.Provider} value=${mayReturn}><${FolderOf.Provider} value=${folder}><div
    class=${`one-conversation${hasDetails ? " detailed" : ""}`}>
    <${Heading} record=${record} number=${number} total=${total} wire=${[wire[0] && !shown, toTalk(wire[1])]}
      filters=${[filters[0] && !shown, toTalk(filters[1])]}
      details=${details} shown=${shown} show=${show} ahead=${ahead}
        onFork=${forks.atEnd && fork ? () => fork() : undefined} onDone=${refresh} />
    <div class="main">
      ${
        shown
          ? html`<div key=${shown} class="place" tabindex="-1"><${Lazy} load=${LOADS[shown]} id=${id} status=${status}
            waiting=${items.length} onDone=${refresh} file=${query.file} line=${query.line}
            since=${query.since} /></div>`
          : html`${filters[0] && html`<${Filters} id=${id} log=${log} total=${total} query=${query} />`}
          <${Sought.Provider} value=${query.text ?? ""}><${Timeline} key=${log} id=${id} log=${log} waiting=${waiting}
            writing=${hasFilters ? "" : writing} output=${feed.output} decisions=${feed.decisions}
            isWire=${wire[0] || hasFilters} isRaw=${wire[0]} isRunning=${status === "running"}
            isOutside=${Boolean(record.external)}
            isFiltered=${hasFilters} onReset=${reset} forks=${forks} onFork=${fork} /><//>`
      }
      <${Prompts} of=${of} app=${app} items=${items} named=${query.event} />
      ${record.external && html`<${Elsewhere} of=${record.external} />`}
      ${
        may("write") &&
        !record.external &&
        html`<${Composer} key=${id} id=${id} status=${status} log=${log} waiting=${items.length}
        onDone=${refresh} />`
      }
    </div>
    ${
      hasDetails &&
      html`<${Details} record=${record} total=${total} onDone=${refresh}
      onClose=${() => setDetails(false)} />`
    }
    ${
      forked?.isBack &&
      html`<${ReturnDialog} record=${record} event=${forked.event}
      onClose=${() => setForked(null)} />`
    }
    ${
      forked &&
      !forked.isBack &&
      html`<${Fork} record=${record} event=${forked.event} hasFiles=${forks.hasFiles}
      onClose=${() => setForked(null)} />`
    }
  </div><//><//>`;
}
