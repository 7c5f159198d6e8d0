// All conversations: live, with filters that the address keeps, and a search of everything that was said.
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { holding, useList } from "../lib/lists.js";
import { useRead } from "../lib/read.js";
import { href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { visible } from "../lib/visible.js";
import { age, dollars, millis } from "../lib/words.js";
import { askerOf, hostOf } from "../parts/asker.js";
import { ConversationFilters, isFiltered } from "../parts/conversation_filters.js";
import { ListFoot, ListHead, moveFocus } from "../parts/list.js";
import { MessageSearch } from "../parts/message_search.js";
import { Empty } from "../parts/notices.js";
import { isOpen } from "../parts/outcome.js";
import { CONVERSATION, Deleted, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two counts of conversations of which the list shows some. */
const COUNTED_EVERY = 10;

/** Most tags that a row shows; most conversations that one request names. */
const MOST_TAGS = 3,
  MOST_IDS = 100;

/** The links of the rows, which `j` and `k` move between. */
const LINKS = ".rows a.title";

/** The filters of the API that the address names. */
function filters({ text, status, kind, tag, sandbox_id, since, until }) {
  return { text, status, kind, tag, sandbox_id, updated__gte: since, updated__lt: until };
}

/** Whether a conversation passes the filters, as the server's search decides. */
function fits(item, { text, status, kind, tag, sandbox_id, since, until }) {
  const [name, ...value] = (tag ?? "").split("=");
  return (
    (!status || item.execution_status === status) &&
    (!kind || kind === (item.external ? "external" : item.sandbox_id ? "sandbox" : "detached")) &&
    (!sandbox_id || item.sandbox_id === sandbox_id) &&
    (!text || (item.title ?? "").toLowerCase().includes(text.toLowerCase())) &&
    (!tag || (name in item.tags && (!value.length || item.tags[name] === value.join("=")))) &&
    (!since || millis(item.updated_at) >= millis(since)) &&
    (!until || millis(item.updated_at) < millis(until))
  );
}

/**
 * Of conversations with a sandbox: their repository, branch and cost, by id. They are read again when one comes, or
 * stops.
 */
function useApps(rows) {
  const some = (rows ?? []).filter((item) => item.sandbox_id).slice(0, MOST_IDS);
  const ids = some.map((item) => item.id),
    states = some.map((item) => `${item.id} ${item.execution_status}`).join();
  const { value } = useRead(
    ids.length ? (signal) => call("GET /api/v1/app-conversations", { query: { ids }, signal }) : null,
    { version: states },
  );
  return useMemo(() => new Map((value ?? []).filter(Boolean).map((app) => [bare(app.id), app])), [value]);
}

/** An id without hyphens, as the two lists of the API write it differently. */
const bare = (id) => id.replaceAll("-", "");

/** What an agent works on: a repository and its branch, or a folder of somebody's machine. */
function WorkedOn({ item, app }) {
  if (item.external)
    return html`<span class="where" data-testid="of-terminal" title=${visible(askerOf(item.external))}><${Text}
      text=${hostOf(item.external)} /></span>`;
  const { selected_repository: repository, selected_branch: branch } = app ?? {};
  const name = repository?.replace(/^https?:\/\/[^/]+\//, "").replace(/\.git$/, "");
  return html`<span class="where" title=${repository ? visible(repository) : undefined}>
    ${repository && html`<${Text} prose text=${branch ? `${name} / ${branch}` : name} />`}</span>`;
}

/** Who started a conversation, or was given it: nothing on a server that needs no key. */
const ownerOf = ({ owner }) => (!owner || isOpen(owner) ? "" : owner);

/** Cost of the models, in words. Empty where no price is known. */
const costOf = (app) => (app?.metrics?.accumulated_cost > 0 ? dollars(app.metrics.accumulated_cost) : "");

/** A row, drawn again only when its conversation changed. */
class ConversationRow extends Component {
  shouldComponentUpdate({ item, leaving, app }) {
    return item !== this.props.item || leaving !== this.props.leaving || app !== this.props.app;
  }

  render({ item, leaving, app }) {
    const tags = Object.entries(item.tags),
      owner = ownerOf(item);
    return html`<li class=${`row conversation${leaving ? " leaving" : ""}`} data-testid=${`conversation-${item.id}`}>
      <span class="what">
        <a class="title" href=${href("conversations", item.id)}><${Text} prose
          text=${item.title || "Without a title"} /></a>
        ${tags
          .slice(0, MOST_TAGS)
          .map(
            ([name, value]) =>
              html`<span class="tag" key=${name}><${Text} prose text=${value ? `${name}=${value}` : name} /></span>`,
          )}
        ${tags.length > MOST_TAGS && html`<span class="tag">+${tags.length - MOST_TAGS}</span>`}
      </span>
      <${WorkedOn} item=${item} app=${app} />
      <span class="who" title=${owner && `Owner: ${visible(owner)}`}>
        ${owner && html`<${Text} prose text=${owner} />`}</span>
      <span class="cost">${costOf(app)}</span>
      ${
        leaving === "deleted"
          ? html`<${Deleted} />`
          : html`<${State} of=${CONVERSATION} status=${item.execution_status} number=${item.pending} />`
      }
      <span class="when"><${Time} at=${item.updated_at} words=${age} /></span>
    </li>`;
  }
}

function NoConversations({ query }) {
  if (isFiltered(query)) {
    return html`<${Empty} title="No conversation matches">
      <button type="button" class="secondary" onClick=${() => setQuery({}, true)}>Clear the filters</button>
    <//>`;
  }
  return html`<${Empty} title="No conversations yet">
    ${
      may("write")
        ? html`<a role="button" href=${href("start")}>New conversation</a>`
        : "This key is read-only. Starting a conversation takes one with the scope “write”."
    }
  <//>`;
}

function ConversationList({ query }) {
  const [list, view] = useList(
    {
      search: "GET /api/v1/conversations/search",
      stream: "GET /api/v1/conversations/stream",
      query: filters(query),
      by: "updated_at",
      fits: (item) => fits(item, query),
    },
    JSON.stringify(query),
  );
  const { rows, leaving, isReading, hasMore } = view;
  const { status, ...others } = query,
    isCounted = hasMore && !isFiltered(others);
  const apps = useApps(rows);
  const counting = isCounted ? "GET /api/conversations/count" : null;
  const { value: total } = useRead(counting, { query: { status }, every: COUNTED_EVERY });
  return html`
    <${ListHead} list=${list} view=${view} name="conversation" total=${total} />
    <ul class="rows" data-testid="conversation-list" aria-label="Conversations" aria-busy=${isReading}
      ...${holding(list)}>
      ${rows?.map(
        (item) => html`<${ConversationRow} key=${item.id} item=${item} leaving=${leaving.get(item.id)}
        app=${apps.get(bare(item.id))} />`,
      )}
    </ul>
    ${rows?.length === 0 && !hasMore && html`<${NoConversations} query=${query} />`}
    <${ListFoot} list=${list} view=${view} />
  `;
}

/** Debounce a value. */
function useSettled(value, milliseconds) {
  const [settled, setSettled] = useState(value);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) return void (first.current = false);
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [JSON.stringify(value)]);
  return settled;
}

export default function ConversationsView({ place }) {
  const query = useSettled(place.query, 250);
  useShortcuts({
    j: { label: "Next conversation", run: () => moveFocus(LINKS, 1) },
    k: { label: "Previous conversation", run: () => moveFocus(LINKS, -1) },
  });
  return html`
    <div class="view-head">
      <h1>Conversations</h1>
      ${may("write") && html`<a role="button" href=${href("start")}>New conversation</a>`}
    </div>
    <${ConversationFilters} query=${place.query} />
    ${
      query.in === "messages"
        ? html`<${MessageSearch} key=${query.text} text=${query.text ?? ""} />`
        : html`<${ConversationList} query=${query} />`
    }
  `;
}
