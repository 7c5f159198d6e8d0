// The search and the filters of the list of conversations. The address keeps them.
import { useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { fieldOf, timeOf } from "../lib/words.js";
import { CONVERSATION } from "./state.js";

/** The filters below "More filters". */
const MORE = ["kind", "tag", "sandbox_id", "since", "until"];

/** Where the agent of a conversation runs. */
const KINDS = { sandbox: "In a sandbox", external: "In a terminal", detached: "Nowhere: detached" };

/** Whether the query of the address filters anything. */
export function isFiltered(query) {
  return ["text", "status", ...MORE].some((name) => query[name]);
}

export function ConversationFilters({ query }) {
  const isOpen = useRef(false); // once open it stays so: a field that is emptied keeps the focus
  isOpen.current ||= MORE.some((name) => query[name]);
  // a choice is a step of the browser's history, typing is not
  const set =
    (name, read = (value) => value) =>
    (event) =>
      setQuery({ ...query, [name]: read(event.target.value) }, event.type === "change");
  const isOfMessages = query.in === "messages";
  return html`<form class="filters" aria-label="Search and filters" onSubmit=${(event) => event.preventDefault()}>
    <div class="bar">
      <label class="wide">Search
        <input type="search" data-search data-testid="search" maxlength="200"
          placeholder=${isOfMessages ? "Words that were said" : "Part of a title"}
          value=${query.text ?? ""} onInput=${set("text")} />
      </label>
      <label>In
        <select data-testid="search-in" value=${query.in ?? ""} onChange=${set("in")}>
          <option value="">Titles</option>
          <option value="messages">Messages</option>
        </select>
      </label>
      ${
        !isOfMessages &&
        html`<label>State
        <select data-testid="filter-status" value=${query.status ?? ""} onChange=${set("status")}>
          <option value="">All</option>
          ${Object.entries(CONVERSATION).map(
            ([status, [words]]) => html`<option key=${status} value=${status}>${words}</option>`,
          )}
        </select>
      </label>`
      }
    </div>
    ${
      !isOfMessages &&
      html`<details class="quiet" open=${isOpen.current}>
      <summary>More filters</summary>
      <div class="bar">
        <label>Agent
          <select data-testid="filter-kind" value=${query.kind ?? ""} onChange=${set("kind")}>
            <option value="">Anywhere</option>
            ${Object.entries(KINDS).map(([kind, words]) => html`<option key=${kind} value=${kind}>${words}</option>`)}
          </select>
        </label>
        <label>Tag<input data-testid="filter-tag" placeholder="NAME or NAME=VALUE" value=${query.tag ?? ""}
          onInput=${set("tag")} /></label>
        <label>Sandbox<input data-testid="filter-sandbox" placeholder="ID" value=${query.sandbox_id ?? ""}
          onInput=${set("sandbox_id")} /></label>
        <label>Changed since<input type="datetime-local" data-testid="filter-since" value=${fieldOf(query.since)}
          onChange=${set("since", timeOf)} /></label>
        <label>Changed before<input type="datetime-local" data-testid="filter-until" value=${fieldOf(query.until)}
          onChange=${set("until", timeOf)} /></label>
        ${
          isFiltered(query) &&
          html`<button type="button" class="quiet"
          onClick=${() => setQuery({}, true)}>Clear the filters</button>`
        }
      </div>
    </details>`
    }
  </form>`;
}
