// A search of the messages of all conversations; commands and their output are not searched.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useAgain } from "../lib/read.js";
import { href } from "../lib/router.js";
import { beginning } from "../lib/visible.js";
import { counted } from "../lib/words.js";
import { Empty, Failure } from "./notices.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Messages of a page; most that are kept; requests for one page, as the server may end a page early. */
const PAGE = 20,
  MOST = 500,
  MOST_READS = 10;

/** Characters of a message before and after a match. */
const BEFORE = 80,
  AFTER = 240;

/** The text of a message. */
function said({ llm_message, extended_content }) {
  const content = [...(llm_message?.content ?? []), ...(extended_content ?? [])];
  return [...content.map((part) => part.text ?? ""), llm_message?.reasoning_content ?? ""].join(" ").trim();
}

/** An excerpt of a message around its match. */
function Snippet({ event, text }) {
  const whole = said(event);
  const at = whole.toLowerCase().indexOf(text.toLowerCase());
  if (at < 0) return html`<${Text} prose text=${beginning(whole, BEFORE + AFTER)} />`;
  const from = Math.max(0, at - BEFORE),
    end = at + text.length;
  const before = `${from > 0 ? "…" : ""}${whole.slice(from, at)}`;
  const after = `${whole.slice(end, end + AFTER)}${end + AFTER < whole.length ? "…" : ""}`;
  return [
    html`<${Text} prose text=${before} />`,
    html`<mark><${Text} prose text=${whole.slice(at, end)} /></mark>`,
    html`<${Text} prose text=${after} />`,
  ];
}

function FoundMessage({ item: { conversation_id, title, event }, text }) {
  return html`<li class="row message" data-testid=${`message-${event.id}`}>
    <span class="what">
      <a class="title" href=${href("conversations", conversation_id, { event: event.id })}><${Text} prose
        text=${title || "Without a title"} /></a>
      <span class="muted">${event.source === "user" ? "A person" : "The agent"}, <${Time}
        at=${event.timestamp} /></span>
    </span>
    <p class="snippet"><${Snippet} event=${event} text=${text} /></p>
  </li>`;
}

/** Messages that have a text: {items, next, error, isReading, more}. */
function useMessages(text) {
  const [state, setState] = useState({ items: [], next: null, error: null, isReading: Boolean(text) });
  const end = useRef(null);
  const more = async (start, known) => {
    const { signal } = end.current;
    setState({ items: known, next: start, error: null, isReading: true });
    let items = known,
      next = start;
    try {
      for (let reads = 0; reads < MOST_READS && items.length < known.length + PAGE && (reads === 0 || next); reads++) {
        const page = await call("GET /api/v1/messages/search", { query: { text, limit: PAGE, page_id: next }, signal });
        items = [...items, ...page.items];
        next = page.next_page_id;
        setState({ items, next, error: null, isReading: true });
      }
      setState({ items, next, error: null, isReading: false });
    } catch (error) {
      if (!signal.aborted) setState({ items, next, error, isReading: false });
    }
  };
  useEffect(() => {
    end.current = new AbortController();
    if (text) more(null, []);
    return () => end.current.abort();
  }, []);
  const goOn = () => more(state.next, state.items);
  useAgain(state.error, goOn);
  return { ...state, more: goOn };
}

export function MessageSearch({ text }) {
  const { items, next, error, isReading, more } = useMessages(text);
  if (!text)
    return html`<${Empty} title="Search all messages">Enter words to find every message that contains them, from people
      and agents, in every conversation. Commands and output are not searched.<//>`;
  const isFull = items.length >= MOST;
  return html`
    <div class="list-head" role="status"><span class="muted">
      ${isReading ? "Searching" : counted(items.length, "message", next)}</span></div>
    <ul class="rows" data-testid="message-list" aria-label="Messages">
      ${items.map(
        (item) => html`<${FoundMessage} key=${`${item.conversation_id} ${item.event.id}`} item=${item}
        text=${text} />`,
      )}
    </ul>
    ${error && html`<${Failure} error=${error} again=${more} />`}
    ${
      !items.length &&
      !isReading &&
      !next &&
      !error &&
      html`<${Empty} title="No messages found">Try other words, or search the titles instead.<//>`
    }
    ${isFull && html`<p class="muted">${MOST} are shown, and no more at once: more words find less.</p>`}
    ${
      next &&
      !error &&
      !isFull &&
      html`<p class="more"><button type="button" class="secondary" aria-busy=${isReading} disabled=${isReading}
      onClick=${more}>Keep searching</button></p>`
    }
  `;
}
