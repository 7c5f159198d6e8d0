// An agent's list of tasks, as its tool has it.
import { html } from "../lib/html.js";
import { Text } from "./text.js";

/** By status: a sign, and what it is called. */
const STATUSES = { done: ["✓", "done"], in_progress: ["▸", "in progress"], todo: ["○", "to do"] };
const MEMBERS = ["title", "notes", "status"];

function isTask(one) {
  return (
    one !== null &&
    typeof one === "object" &&
    typeof one.title === "string" &&
    Object.entries(one).every(([name, value]) => MEMBERS.includes(name) && typeof value === "string") &&
    Object.hasOwn(STATUSES, one.status ?? "todo")
  );
}

/** The tasks that an action or a result has; null where it has none, or more than the list shows. */
export function tasksOf(values) {
  const tasks = values?.task_list;
  return Array.isArray(tasks) && tasks.length > 0 && tasks.every(isTask) ? tasks : null;
}

/** How many tasks are done, in words. */
export function progressOf(tasks) {
  return `${tasks.filter(({ status }) => status === "done").length} of ${tasks.length} done`;
}

function Task({ task: { title, notes, status = "todo" } }) {
  const [sign, name] = STATUSES[status];
  return html`<li class=${status}><span role="img" aria-label=${name}>${sign}</span>
    <span><${Text} prose text=${title} />${notes && html` <span class="muted"><${Text} prose text=${notes} /></span>`}
      </span></li>`;
}

export function Tasks({ tasks }) {
  return html`<ul class="tasks" data-testid="tasks" aria-label=${`Tasks, ${progressOf(tasks)}`}>
    ${tasks.map((task, place) => html`<${Task} key=${place} task=${task} />`)}
  </ul>`;
}
