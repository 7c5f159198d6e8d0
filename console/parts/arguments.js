// The arguments of an action, all of them: a command, a change of a file, or JSON.
import { html } from "../lib/html.js";
import { beginning } from "../lib/visible.js";
import { Code } from "./code.js";
import { Lazy } from "./lazy.js";
import { Tasks, tasksOf } from "./tasks.js";
import { Text } from "./text.js";

const loadDiff = () => import("./diff.js");

/** Whether arguments have names. */
export function isObject(given) {
  return given !== null && typeof given === "object" && !Array.isArray(given);
}

/**
 * Whether the agent shows words in place of arguments, so that more may run than is shown. As core/incomplete.py says
 * it.
 */
export const isIncomplete = (given) => isObject(given) && isObject(given.data) && "_incomplete" in given.data;

/** The arguments by name: those of a tool that is not the server's own are all in `data`. */
const byName = (given) => (isObject(given.data) && Object.keys(given).length === 1 ? given.data : given);

const isText = (value) => typeof value === "string";

/** What some tools call the members of a change of a file. */
const PATH = ["path", "file_path"],
  WHOLE = ["file_text", "content"];
const OLD = ["old_str", "old_string"],
  NEW = ["new_str", "new_string"];

/** What a file tool does, in words; others are shown by their own word. */
const VERBS = {
  create: "Write the file",
  str_replace: "Change the file",
  insert: "Insert into the file",
  view: "Read the file",
};

/**
 * Tools whose silent arguments are at their defaults: the bundled agent's and OpenHands'. Those of another tool may
 * mean something.
 */
const KNOWN = new Set(
  "terminal file_editor grep glob fetch task_tracker finish think execute_bash str_replace_editor".split(" "),
);

/** Whether an argument says nothing. */
export const saysNothing = (value) => ["null", "false", '""', "[]", "{}"].includes(JSON.stringify(value));

function named(values, names) {
  return names.find((name) => isText(values[name]));
}

/** What a tool of files does: {verb, path, names of the arguments that say so}; null for any other tool. */
function changeOf(values) {
  const path = named(values, PATH),
    after = named(values, NEW);
  const verb = isText(values.command) && Object.hasOwn(VERBS, values.command) ? values.command : "";
  if (!path || !(verb || (!isText(values.command) && (named(values, WHOLE) || after)))) return null;
  return { verb, path, used: [path, ...(verb ? ["command"] : [])] };
}

/** Characters of a line. */
const LINE = 160;

/** The end of a path, which says most: its last two names. */
const endOf = (path) => path.replace(/^.*(?=\/[^/]+\/[^/]+$)/s, "…");

/**
 * What an action does, in a line: [lead, text], with "…" where there is more. The lead is the tool's name, or what it
 * does to a file; a command has none.
 */
export function lineOf({ tool_name, arguments: given }) {
  const values = isIncomplete(given) ? { title: given.data.title } : isObject(given) ? byName(given) : {},
    change = changeOf(values);
  if (change) {
    const { verb, path } = change;
    return [
      VERBS[verb || (named(values, NEW) ? "str_replace" : "create")].split(" ")[0],
      beginning(endOf(values[path]), LINE),
    ];
  }
  const isSaid = (value) => isText(value) && value.trim(),
    { command, ...others } = values;
  const first = isSaid(command) ? command : (Object.values(others).find(isSaid) ?? JSON.stringify(given) ?? "");
  const [line, ...more] = first.trim().split("\n");
  return [isSaid(command) ? "" : tool_name, more.length ? `${line.slice(0, LINE)} …` : beginning(line, LINE)];
}

/** What is shown in a way of its own: {head, body, used: names of the arguments}; the others follow it. */
function form(values) {
  const whole = named(values, WHOLE),
    before = named(values, OLD),
    after = named(values, NEW);
  const change = changeOf(values),
    tasks = tasksOf(values);
  if (tasks) return { head: null, body: html`<${Tasks} tasks=${tasks} />`, used: ["command", "task_list"] };
  if (change) {
    const { verb, path, used } = change;
    const where = (kind) => html`<p class="what">${VERBS[kind]} <code><${Text} text=${values[path]} /></code></p>`;
    if (after && (before || verb === "insert") && verb !== "create" && verb !== "view") {
      const diff = html`<${Lazy} load=${loadDiff} before=${before ? values[before] : ""} after=${values[after]} />`;
      return { head: where(verb || "str_replace"), body: diff, used: [...used, after, before] };
    }
    if (whole && (verb || "create") === "create") {
      const body = html`<${Code} text=${values[whole]} label="Content of the file" />`;
      return { head: where("create"), body, used: [...used, whole] };
    }
    if (verb) return { head: where(verb), body: null, used };
  }
  if (isText(values.command)) {
    const body = html`<${Code} text=${values.command} label="Command" name="command" />`;
    return { head: null, body, used: ["command"] };
  }
  return { head: null, body: null, used: [] };
}

/** The arguments that have no look of their own: silent ones of a known tool are folded, or left out where isBrief. */
function OtherArguments({ values, tool, isBrief }) {
  const all = Object.entries(values),
    isQuiet = ([, value]) => KNOWN.has(tool) && saysNothing(value),
    quiet = all.filter(isQuiet);
  const loud = Object.fromEntries(all.filter((one) => !isQuiet(one)));
  return html`${
    quiet.length < all.length && html`<${Code} text=${JSON.stringify(loud, null, 2)} label="Arguments" name="json" />`
  }
    ${
      quiet.length > 0 &&
      !isBrief &&
      html`<details class="quiet quiet-arguments">
      <summary title="Arguments at the tool's defaults. A decision is about them, too.">${quiet.length} more</summary>
      <code><${Text} text=${quiet.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ")} /></code>
    </details>`
    }`;
}

/** What a person has to know before they read arguments that are incomplete. */
const Incomplete = () =>
  html`<p class="incomplete" role="note" data-testid="incomplete">
    <strong>What is shown is less than what will run.</strong>${" "}
    The agent does not show the arguments of this call, so no rule decides it.</p>`;

/**
 * All arguments of an action. arguments: JSON of any form, as the agent gave it. tool: its name. isBrief: without those
 * that say nothing.
 */
export function Arguments({ arguments: given, tool = "", isBrief = false }) {
  if (!isObject(given)) {
    return html`<${Code} text=${JSON.stringify(given ?? null, null, 2)} label="Arguments" name="json" />`;
  }
  const values = byName(given),
    { head, body, used } = form(values);
  const rest = Object.fromEntries(Object.entries(values).filter(([name]) => !used.includes(name)));
  if (!Object.keys(values).length) return html`<p class="muted">No arguments.</p>`;
  return html`<div class="arguments">${isIncomplete(given) && html`<${Incomplete} />`}${head}${body}<${OtherArguments}
    values=${rest} tool=${tool} isBrief=${isBrief} /></div>`;
}
