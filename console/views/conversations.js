// All conversations: live, with filters that the address keeps, and a search of everything that was said.
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { holding, useList } from "../lib/lists.js";
import { usePolled } from "../lib/polled.js";
import { go, href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { visible } from "../lib/visible.js";
import { millis } from "../lib/words.js";
import { askerOf, hostOf } from "../parts/asker.js";
import { ConversationFilters, isFiltered } from "../parts/conversation_filters.js";
import { ListFoot, ListHead, moveFocus } from "../parts/list.js";
import { MessageSearch } from "../parts/message_search.js";
import { Empty } from "../parts/notices.js";
import { CONVERSATION, Deleted, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two counts of conversations of which the list shows some. */
const COUNTED_EVERY = 10;

/** Most tags that a row shows. */
const MOST_TAGS = 5;

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

/** A row, drawn again only when its conversation changed. */
class Row extends Component {
  shouldComponentUpdate({ item, leaving }) {
    return item !== this.props.item || leaving !== this.props.leaving;
  }

  render({ item, leaving }) {
    const tags = Object.entries(item.tags);
    return html`<li class=${`row conversation${leaving ? " leaving" : ""}`} data-testid=${`conversation-${item.id}`}>
      ${leaving === "deleted" ? html`<${Deleted} />` : html`<${State} of=${CONVERSATION} status=${item.execution_status} number=${item.pending} />`}
      <span class="what">
        <a class="title" href=${href("conversations", item.id)}><${Text} prose text=${item.title || "Without a title"} /></a>
        ${tags
          .slice(0, MOST_TAGS)
          .map(
            ([name, value]) =>
              html`<span class="tag" key=${name}><${Text} prose text=${value ? `${name}=${value}` : name} /></span>`,
          )}
        ${tags.length > MOST_TAGS && html`<span class="tag">+${tags.length - MOST_TAGS}</span>`}
      </span>
      <span class="where">
        ${
          item.sandbox_id
            ? html`<a href=${href("sandboxes", item.sandbox_id)} title=${`Sandbox ${item.sandbox_id}`}>${item.sandbox_id}</a>`
            : item.external
              ? html`<span data-testid="of-terminal" title=${visible(askerOf(item.external))}><${Text} text=${hostOf(item.external)} /></span>`
              : html`<span class="muted">detached</span>`
        }
      </span>
      <span class="when"><${Time} at=${item.updated_at} /></span>
    </li>`;
  }
}

function Nothing({ query }) {
  if (isFiltered(query)) {
    return html`<${Empty} title="No conversation matches">
      <button type="button" class="secondary" onClick=${() => setQuery({})}>Clear the filters</button>
    <//>`;
  }
  return html`<${Empty} title="No conversations yet">
    ${
      may("write")
        ? html`<a role="button" href=${href("start")}>Start a conversation</a>`
        : "This key is read-only. Starting a conversation takes one with the scope “write”."
    }
  <//>`;
}

function List({ query }) {
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
  const { value: total } = usePolled(
    (signal) => (isCounted ? call("GET /api/conversations/count", { query: { status }, signal }) : undefined),
    COUNTED_EVERY,
    `${isCounted} ${status}`,
  );
  return html`
    <${ListHead} list=${list} view=${view} name="conversation" total=${total} />
    <ul class="rows" data-testid="conversation-list" aria-label="Conversations" aria-busy=${isReading} ...${holding(list)}>
      ${rows?.map((item) => html`<${Row} key=${item.id} item=${item} leaving=${leaving.get(item.id)} />`)}
    </ul>
    ${rows?.length === 0 && !hasMore && html`<${Nothing} query=${query} />`}
    <${ListFoot} list=${list} view=${view} />
  `;
}

/** The value, once it has stayed the same for a moment. */
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

export default function View({ place }) {
  const query = useSettled(place.query, 250);
  useShortcuts({
    j: { label: "Next conversation", run: () => moveFocus(LINKS, 1) },
    k: { label: "Previous conversation", run: () => moveFocus(LINKS, -1) },
    ...(may("write") && { c: { label: "Start a conversation", run: () => go("start") } }),
  });
  return html`
    <div class="view-head">
      <h1>Conversations</h1>
      ${may("write") && html`<a role="button" href=${href("start")}>New conversation</a>`}
    </div>
    <${ConversationFilters} query=${place.query} />
    ${query.in === "messages" ? html`<${MessageSearch} key=${query.text} text=${query.text ?? ""} />` : html`<${List} query=${query} />`}
  `;
}
