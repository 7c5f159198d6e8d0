// The filters and the groups of what waits in the inbox. The address keeps them, under the names of the
// API; its `security_risk` here is the risk that is shown, which is never less than the agent's own word.
import { useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { byAge, nameOf } from "../lib/pending.js";
import { setQuery } from "../lib/router.js";
import { beginning, visible } from "../lib/visible.js";
import { askedThere, isInTerminal } from "./asker.js";

/** Risks of the wire, in words, in the order of their groups. */
export const RISKS = { HIGH: "High risk", MEDIUM: "Medium risk", UNKNOWN: "Risk unknown", LOW: "Low risk" };

/** The risk of an item: the greater of the agent's own word and of what the server sees. */
export function riskOf(item) {
  const risk = item.risk ?? item.security_risk;
  return Object.hasOwn(RISKS, risk) ? risk : "UNKNOWN";
}

/** The highest risk of items. */
export function highestRisk(items) {
  const found = items.map(riskOf);
  return Object.keys(RISKS).find((risk) => found.includes(risk)) ?? "UNKNOWN";
}

/** Whether some actions are not all the same command. */
export const areMixed = (items) => items.some(({ digest }) => digest !== items[0].digest);

/**
 * What actions like an item have in common, as a rule has it: `git status *`, or files in `src/**`; "" for no proposal.
 */
export function patternOf({ like }) {
  const tests = Object.values(like ?? {});
  return tests.map(({ command, path }) => command ?? path).find(Boolean) ?? "";
}

/** What the server sees that an item does: [{effect, words, because}]. */
export function effectsOf(item) {
  return item.seen?.effects ?? [];
}

/** The same in words: "Deletes · Network". */
export function effectsInWords(item) {
  return effectsOf(item)
    .map(({ words }) => words)
    .join(" · ");
}

/** Who has approved what several people must: "1 of 2 approved: ada"; "" where one person decides. */
export function quorumOf({ quorum }) {
  if (!quorum || quorum.needed < 2) return "";
  const names = quorum.approved_by.join(", ");
  return `${quorum.approved_by.length} of ${quorum.needed} approved${names && `: ${names}`}`;
}

/** Why the reader may not approve an item; "" where they may. */
export function whyNot(item) {
  const { quorum, can } = item;
  if (isInTerminal(item)) return askedThere(item);
  if (quorum?.voted) return "You have approved it already: others must approve it too.";
  if (quorum?.own) return "You may not approve it: you asked for it, or the conversation is yours.";
  return can.includes("approve") ? "" : "You may not approve it: you have no right to approve here.";
}

/** The words of an effect that some items have. */
function effectWords(effect, items = []) {
  return items.flatMap(effectsOf).find((one) => one.effect === effect)?.words ?? effect;
}

export function titleOf(item) {
  if (item.asked && !item.conversation_title) return item.conversation_id ? "Conversation" : "Sandbox";
  const title = item.conversation_title || "Conversation without a title",
    of = item.asked_from;
  // The agent stands beside it
  return of && title.startsWith(`${of.agent}: `) ? title.slice(of.agent.length + 2) : title;
}

/** The tags of an item, as the filter writes them. */
function tagsOf(item) {
  return Object.entries(item.tags ?? {}).map(([name, value]) => (value ? `${name}=${value}` : name));
}

/**
 * The filters, by their names in the address: [label, what an item has of it, words of a value].
 * @type {Record<string, [string, (item: any) => string[], (value: string, items?: any[]) => string]>}
 */
const FILTERS = {
  security_risk: ["Risk", (item) => (item.asked ? [] : [riskOf(item)]), (value) => RISKS[value] ?? value],
  effect: ["Effect", (item) => effectsOf(item).map(({ effect }) => effect), effectWords],
  tool_name: ["Tool", (item) => [item.tool_name], (value) => value],
  conversation_id: [
    "Conversation",
    (item) => (item.conversation_id ? [item.conversation_id] : []),
    (value, items) => titleOf(items.find((item) => item.conversation_id === value) ?? {}),
  ],
  tag: ["Tag", tagsOf, (value) => value],
  machine: ["Machine", ({ asked_from: of }) => (of ? [of.machine] : []), (value) => value],
  agent: ["Agent", ({ asked_from: of }) => (of ? [of.agent] : []), (value) => value],
};

/** Filters that are offered where something has a value for them. */
const OF_SOME = ["machine", "agent"];

/** Characters of a value in a list to choose from. */
const NAME = 60;

/** What an inbox can be grouped by. */
const GROUPED = ["security_risk", "tool_name", "conversation_id"];

/** Whether the query of the address filters anything. */
export function isFiltered(query) {
  return ["text", ...Object.keys(FILTERS)].some((name) => query[name]);
}

function says(item, text) {
  const said = [item.tool_name, item.summary, item.thought, item.conversation_title, JSON.stringify(item.arguments)];
  return said.some((one) =>
    String(one ?? "")
      .toLowerCase()
      .includes(text),
  );
}

/** Whether an item passes the filters of the address. */
export function fits(item, query) {
  const isOf = (/** @type {[string, any[]]} */ [name, [, valuesOf]]) =>
    !query[name] || valuesOf(item).includes(query[name]);
  return Object.entries(FILTERS).every(isOf) && (!query.text || says(item, query.text.toLowerCase()));
}

/** What an item's group is named by: [key, words]; the one group of an inbox without groups is ["", ""]. */
export function groupOf(item, { group }) {
  if (!GROUPED.includes(group)) return ["", ""];
  const [, valuesOf, wordsOf] = FILTERS[group],
    [value] = valuesOf(item);
  if (item.asked && (group !== "conversation_id" || !value)) return ["asked", "Destinations and budgets"];
  return [value, wordsOf(value, [item])];
}

/**
 * What makes items of a section one group: a rule would approve all of them that is proposed for each; where none is,
 * the same command, risk and effects. An item that cannot be decided on its own is in no group.
 */
export function groupingOf(items, query) {
  const numbers = new Map();
  for (const { conversation_id } of items) numbers.set(conversation_id, (numbers.get(conversation_id) ?? 0) + 1);
  return (item) => {
    const [section] = groupOf(item, query);
    if (item.asked || (item.decided_together && numbers.get(item.conversation_id) > 1))
      return JSON.stringify([section, nameOf(item)]);
    if (item.like) return JSON.stringify([section, "like", item.tool_name, item.like]);
    const effects = effectsOf(item).map(({ effect }) => effect);
    return JSON.stringify([section, item.digest, riskOf(item), effects.sort()]);
  };
}

/** The repository of an item, else its folder, as a row names it: OWNER/NAME, or the end of a path; "" for neither. */
export function placeOf({ repository, folder }) {
  if (repository) return repository.split("/").slice(1).join("/");
  return folder ? folder.split("/").filter(Boolean).slice(-2).join("/") : "";
}

/**
 * Compares two items by their groups, and by age in a group. items: all of them; a group has the place of its oldest
 * one.
 */
export function byGroup(items, query) {
  const keys = items.map((item) => groupOf(item, query)[0]);
  const order = query.group === "security_risk" ? Object.keys(RISKS) : [...new Set(keys)];
  const rank = (item) => order.indexOf(groupOf(item, query)[0]);
  return (a, b) => rank(a) - rank(b) || byAge(a, b);
}

/** The values that items have for a filter, the most frequent first: [[value, number]]. */
function valuesIn(items, valuesOf) {
  const numbers = new Map();
  for (const value of items.flatMap(valuesOf)) numbers.set(value, (numbers.get(value) ?? 0) + 1);
  return [...numbers].sort(([, a], [, b]) => b - a);
}

function Filter({ name, query, items }) {
  const [label, valuesOf, wordsOf] = FILTERS[name],
    values = valuesIn(items, valuesOf),
    chosen = query[name];
  if (chosen && !values.some(([value]) => value === chosen)) values.push([chosen, 0]);
  return html`<label>${label}
    <select data-testid=${`filter-${name}`} value=${chosen ?? ""} disabled=${!values.length}
      onChange=${(event) => setQuery({ ...query, [name]: event.target.value }, true)}>
      <option value="">All</option>
      ${values.map(
        ([value, number]) =>
          html`<option key=${value} value=${value}>
        ${beginning(visible(wordsOf(value, items)), NAME)} (${number})</option>`,
      )}
    </select>
  </label>`;
}

/** items: all that wait. query: of the address. */
export function PromptFilters({ items, query }) {
  const isOffered = (name) => !OF_SOME.includes(name) || query[name] || items.some((item) => item.asked_from);
  const names = Object.keys(FILTERS).filter(isOffered),
    isOpen = useRef(false); // once open it stays so: a field that is emptied keeps the focus
  isOpen.current ||= names.some((name) => query[name]);
  const set = (name) => (event) => setQuery({ ...query, [name]: event.target.value }, event.type === "change");
  return html`<form class="filters" aria-label="Search and filters" onSubmit=${(event) => event.preventDefault()}>
    <input type="search" data-search data-testid="search" maxlength="200" aria-label="Search what waits"
      placeholder="Search commands and titles"
      value=${query.text ?? ""} onInput=${set("text")} />
    <details class="quiet" open=${isOpen.current}>
      <summary>Filters</summary>
      <div class="bar">${names.map(
        (name) => html`<${Filter} key=${name} name=${name} query=${query} items=${items} />`,
      )}</div>
    </details>
    <select data-testid="group-by" aria-label="Sections" value=${query.group ?? ""} onChange=${set("group")}>
      <option value="">No sections</option>
      ${GROUPED.map((name) => html`<option key=${name} value=${name}>By ${FILTERS[name][0].toLowerCase()}</option>`)}
    </select>
  </form>`;
}
