// A search of everything that one can go to or do: views, conversations, messages, actions of this view, settings.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ranked } from "../lib/fuzzy.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { recent } from "../lib/recent.js";
import { go, route } from "../lib/router.js";
import { opened, shortcuts } from "../lib/shortcuts.js";
import { beginning } from "../lib/visible.js";
import { counted } from "../lib/words.js";
import { Keys } from "./shortcut_list.js";
import { Text } from "./text.js";

/**
 * Entries of a group of what the server finds; characters of a text and of a search; of a search of messages at least;
 * milliseconds until it begins.
 */
const MOST = 8,
  MOST_TEXT = 120,
  MOST_TYPED = 200,
  LEAST_SEARCHED = 3,
  PAUSE = 150;

const UNTITLED = "Without a title";

/** What an action gets in the place of the key that it asks for. */
const PRESS = { preventDefault: () => {}, repeat: false, currentTarget: window };

/** The value, once nothing was typed for a moment. */
function usePaused(value) {
  const [paused, setPaused] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setPaused(value), PAUSE);
    return () => clearTimeout(timer);
  }, [value]);
  return paused;
}

const conversation = (id, title, detail = "", query = {}) => ({
  id,
  text: beginning(title || UNTITLED, MOST_TEXT),
  detail,
  run: () => go("conversations", id, query),
});

/** What the page knows by itself, by groups. */
function useKnown() {
  return useMemo(() => {
    const present = route.get().id;
    const seen = recent().filter(({ id }) => id !== present);
    const groups = /** @type {Map<string, any[]>} */ (
      new Map([["Recent", seen.map(({ id, title }) => conversation(id, title))]])
    );
    for (const [name, { label, group, run }] of Object.entries(shortcuts())) {
      if (!run || !label) continue;
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push({ text: label, detail: "", name, run: () => run(PRESS) });
    }
    const order = ["Recent", "Decisions", "This view", "Go to", "Everywhere", "Settings"];
    return [...groups].sort(([one], [other]) => order.indexOf(one) - order.indexOf(other));
  }, []);
}

/** What the server finds: {groups, isReading}. */
function useFound(typed) {
  const text = usePaused(typed);
  const some = text !== "",
    long = text.length >= LEAST_SEARCHED;
  const titles = useRead(some ? "GET /api/v1/conversations/search" : null, { query: { text, limit: MOST } });
  const said = useRead(long ? "GET /api/v1/messages/search" : null, { query: { text, limit: MOST } });
  const isReading = text !== typed || [some && titles, long && said].some((one) => one && !one.value && !one.error);
  const messages = (said.value?.items ?? []).map(({ conversation_id, title, event }) => {
    const [first = ""] = (event.llm_message?.content ?? []).map((part) => part.text ?? "").filter(Boolean);
    const at = Math.max(0, first.toLowerCase().indexOf(text.toLowerCase()) - 40);
    const shown = beginning(first.slice(at).replace(/\s+/g, " ").trim(), MOST_TEXT);
    return conversation(conversation_id, shown, title || UNTITLED, { event: event.id });
  });
  const groups = [
    ["Conversations", (titles.value?.items ?? []).map(({ id, title }) => conversation(id, title))],
    ["Messages", messages],
  ];
  return { groups, isReading };
}

/** The best score of a group. */
const best = ([, items]) => Math.max(0, ...items.map(({ score }) => score));

/**
 * The groups that are shown: what the page knows, the best first, and below it what the server finds. So nothing moves
 * under a press when that comes. Letters in their order count where no word does.
 */
function shownOf(typed, known, found) {
  const own = known.map(([group, items]) => [group, ranked(typed, items)]),
    least = own.some((group) => best(group) >= 1) ? 1 : 0;
  const first = own.map(([group, items]) => [group, items.filter(({ score }) => score >= least)]);
  if (typed) first.sort((a, b) => best(b) - best(a));
  const seen = new Set(first.flatMap(([, items]) => items.map(({ id }) => id)).filter(Boolean));
  // The server finds parts of a title as they are typed; what it found otherwise is shown without marks.
  const others = found.map(([group, items]) => [
    group,
    items
      .filter(({ id }) => group === "Messages" || !seen.has(id))
      .map((item) => ranked(typed, [item])[0] ?? { ...item, score: 0, marks: [] }),
  ]);
  return [...first, ...others].filter(([, items]) => items.length);
}

function Marks({ text, marks }) {
  const parts = [];
  let from = 0;
  for (const [start, end] of marks) {
    parts.push(html`<${Text} prose text=${text.slice(from, start)} />`);
    parts.push(html`<mark><${Text} prose text=${text.slice(start, end)} /></mark>`);
    from = end;
  }
  return [...parts, html`<${Text} prose text=${text.slice(from)} />`];
}

export default function Palette() {
  const dialog = useRef(null),
    [text, setText] = useState(""),
    [chosen, choose] = useState(0);
  const typed = text.trim();
  const known = useKnown(),
    { groups: found, isReading } = useFound(typed);
  const groups = shownOf(typed, known, found),
    entries = groups.flatMap(([, items]) => items),
    current = Math.min(chosen, entries.length - 1);
  useEffect(() => {
    const before = /** @type {HTMLElement} */ (document.activeElement);
    const element = dialog.current;
    element.showModal();
    return () => {
      element.close();
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    dialog.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [current, groups.length]);
  const close = () => opened.set("");
  const run = (entry) => {
    close();
    setTimeout(entry.run); // once the focus is where it was: an action may move it
  };
  const onKey = (event) => {
    const { key } = event,
      last = entries.length - 1;
    const to = { ArrowDown: current < last ? current + 1 : 0, ArrowUp: current > 0 ? current - 1 : last }[key];
    if (key === "Escape") close();
    else if (key === "Enter" && !event.repeat && entries[current]) run(entries[current]);
    else if (to !== undefined) choose(to);
    else return;
    event.preventDefault();
  };
  let place = 0;
  const group = ([name, items]) => html`<ul key=${name} role="group" aria-label=${name}>
    <li role="presentation" class="group">${name}</li>
    ${items.map((entry) => {
      const own = place++;
      return html`<li key=${`${own} ${entry.text}`} role="option" id=${`palette-${own}`}
        aria-selected=${own === current} data-testid="palette-entry"
        onPointerMove=${() => own !== current && choose(own)} onClick=${() => run(entry)}>
        <span class="text"><${Marks} ...${entry} /></span>
        ${entry.detail && html`<span class="muted"><${Text} prose text=${entry.detail} /></span>`}
        ${entry.name && html`<${Keys} name=${entry.name} />`}
      </li>`;
    })}
  </ul>`;
  return html`<dialog class="palette" ref=${dialog} aria-label="Search everything"
    onCancel=${(event) => (event.preventDefault(), close())} onKeyDown=${onKey}
    onClick=${(event) => event.target === dialog.current && close()} data-testid="palette">
    <article>
      <input type="text" role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls="palette-list"
        aria-activedescendant=${entries.length ? `palette-${current}` : undefined}
        aria-label="Search views, conversations and actions" placeholder="Search views, conversations and actions"
          autofocus autocomplete="off" spellcheck=${false} maxlength=${MOST_TYPED}
        data-testid="palette-text" value=${text} onInput=${(event) => (setText(event.target.value), choose(0))} />
      <div id="palette-list" role="listbox" aria-label="Results" tabindex="-1">${groups.map(group)}</div>
      <p class="muted" role="status">
        ${
          isReading
            ? "Searching"
            : entries.length
              ? counted(entries.length, "result")
              : "Nothing found. Try other words."
        }</p>
    </article>
  </dialog>`;
}
