// One event of the timeline, by its kind. An event of an unknown kind is shown as JSON.
import { Component } from "preact";
import { html } from "../lib/html.js";
import { me } from "../lib/session.js";
import { beginning, visible } from "../lib/visible.js";
import { counted } from "../lib/words.js";
import { Folded, SAID, Text } from "../parts/text.js";
import { Clock } from "../parts/time.js";
import { isOpen } from "../parts/outcome.js";
import { CONVERSATION } from "../parts/state.js";
import { Arguments } from "../parts/arguments.js";
import { Code } from "../parts/code.js";
import { progressOf, Tasks, tasksOf } from "../parts/tasks.js";
import { Output } from "../parts/output.js";
import { Content, Images, Json, More, partsOf, Prose } from "./content.js";
import { Here } from "./here.js";
import { Pushed } from "./pushed.js";
import { kindOf } from "./rows.js";

const POLICIES = {
  NeverConfirm: "every action runs without approval",
  AlwaysConfirm: "every action needs approval",
  ConfirmRisky: "risky actions need approval",
};

function Message({ event, isTalk }) {
  const { content, reasoning_content: reasoning } = event.llm_message ?? {};
  const extended = partsOf(event.extended_content);
  return html`<${Content} content=${content} isTalk=${isTalk} />
    ${reasoning && html`<${More} label="Reasoning" text=${reasoning}><${Prose} text=${reasoning} /><//>`}
    ${
      (extended.text || extended.images.length > 0) &&
      html`<${More} label="Added for the agent" text=${extended.text}><${Content}
      content=${event.extended_content} /><//>`
    }`;
}

/**
 * The proposed action. If no tool of the agent could parse it, the event has no action, and the raw call is shown.
 * isTalk: leave out arguments that tell the reader nothing.
 */
export function EventProposal({ event, isTalk }) {
  const { kind, ...values } =
    typeof event.action === "object" && event.action ? event.action : { call: event.tool_call ?? null };
  const said = Object.keys(values).length === 1 ? (values.message ?? values.thought) : null;
  return typeof said === "string"
    ? html`<${Prose} text=${said} />`
    : html`<${Arguments} tool=${event.tool_name} arguments=${values} isBrief=${isTalk} />`;
}

/** The risk of an action, if the agent rates it. isBrief: do not show a low risk. */
export function Risk({ event, isBrief = false }) {
  const risk = String(event.security_risk ?? "UNKNOWN").toLowerCase();
  return risk !== "unknown" && !(isBrief && risk === "low") && html` <span class=${`risk ${risk}`}>${risk} risk</span>`;
}

/** The agent's explanation of an action, folded. */
export function Summary({ event }) {
  return html`<${Folded} text=${String(event.summary)} ...${SAID}>
    ${(text) => html`<${Text} prose text=${text} />`}<//>`;
}

/** Replaces the body of a pending action, whose prompt is below the timeline. */
export function Waits({ event }) {
  const show = () => {
    /** @type {HTMLElement} */
    const prompt = document.querySelector(`[data-testid="pending-${CSS.escape(event.id)}"]`);
    (prompt ?? /** @type {HTMLElement} */ (document.querySelector(".waits-here [data-testid=show-more]")))?.focus();
  };
  return html`<span class="waits">Waits for a decision <button type="button" class="quiet" data-testid="to-decision"
    onClick=${show}>Show it</button></span>`;
}

function Action({ event, results, isTalk }) {
  return html`
    <${Content} content=${event.thought} isTalk=${isTalk} />
    ${
      event.reasoning_content &&
      html`<${More} label="Reasoning" text=${event.reasoning_content}><${Prose}
      text=${event.reasoning_content} /><//>`
    }
    ${event.summary && html`<p class="summary"><${Summary} event=${event} /><${Risk} event=${event} /></p>`}
    <${EventProposal} event=${event} isTalk=${isTalk} />
    ${results.map(
      (
        result,
      ) => html`<div key=${result.id} class="result" data-testid=${`event-${result.id}`} data-kind=${kindOf(result)}>
      <${Head} event=${result} /><${EventBody} event=${result} isTalk=${isTalk} />
    </div>`,
    )}`;
}

/** Members of an observation that are shown elsewhere: with the action, or as the outcome. */
const SAID_ELSEWHERE = ["kind", "content", "is_error", "exit_code", "command", "timeout"];

function Observation({ event }) {
  const { observation } = event;
  if (!observation || typeof observation !== "object") return html`<${Json} value=${observation ?? event} />`;
  const tasks = tasksOf(observation);
  if (tasks && observation.command === "plan") return html`<p class="muted">${progressOf(tasks)}</p>`;
  if (tasks) return html`<${Tasks} tasks=${tasks} />`;
  const { text, images } = partsOf(observation.content);
  const printed =
    text ||
    [observation.output, observation.stdout, observation.stderr].filter((one) => typeof one === "string").join("\n");
  const saysMore = Object.keys(observation).some((name) => !SAID_ELSEWHERE.includes(name));
  if (!printed && !images.length)
    return saysMore ? html`<${Json} value=${observation} />` : html`<p class="muted">No output.</p>`;
  return html`${printed && html`<${Output} text=${printed} id=${event.id} />`}<${Images} addresses=${images} />`;
}

function Rejection({ event }) {
  return html`<${Prose} text=${event.rejection_reason || event.reason || "No reason given."} />`;
}

function EventFault({ event }) {
  const text = [event.error, event.detail].find((one) => typeof one === "string");
  return text ? html`<${Output} text=${text} id=${event.id} />` : html`<${Json} value=${event} />`;
}

function SystemPrompt({ event }) {
  const number = event.tools?.length ?? 0;
  return html`<${More} label=${`Instructions of the agent, ${number} ${number === 1 ? "tool" : "tools"}`}>
    <${Content} content=${event.system_prompt} />
      ${event.dynamic_context && html`<${Content} content=${event.dynamic_context} />`}
    ${number > 0 && html`<${Json} value=${event.tools} />`}
  <//>`;
}

/** A change of the conversation's state, on one line. */
function Change({ event: { key, value } }) {
  if (key === "execution_status") return CONVERSATION[value]?.[0] ?? String(value);
  if (key === "title") return html`Title: <${Text} prose text=${String(value)} />`;
  if (key === "confirmation_policy") return `From now on ${POLICIES[value?.kind] ?? value?.kind}`;
  if (key === "approval_mode")
    return `Approval mode: ${value?.mode ?? "none of the modes"}, before: ${value?.before ?? "none of them"}`;
  if (key === "tags")
    return html`Tags: <${Text} prose text=${
      Object.entries(value ?? {})
        .map(([name, one]) => (one === "" ? name : `${name}=${one}`))
        .join(", ") || "none"
    } />`;
  if (key === "pushed") return html`<${Pushed} value=${value} />`;
  if (key === "returned_to") return "Returned to an earlier event";
  if (key === "stats") return html`<${More} label="Costs and tokens"><${Json} value=${value} /><//>`;
  return html`<${More} label=${String(key).replaceAll("_", " ")}><${Json} value=${value} /><//>`;
}

function Condensed({ event, isTalk }) {
  const number = event.forgotten_event_ids?.length;
  return html`<p>${
    number == null
      ? "The agent shortens what it remembers."
      : `The agent forgot ${counted(number, "event")} and keeps a summary.`
  }</p>
    ${event.summary && html`<${Prose} text=${event.summary} isTalk=${isTalk} />`}`;
}

function Hook({ event }) {
  const said = [event.stdout, event.stderr, event.reason, event.error]
    .filter((one) => typeof one === "string" && one)
    .join("\n");
  return html`${event.hook_command && html`<${Code} text=${String(event.hook_command)} label="Command of the hook" />`}
    ${said && html`<${Output} text=${said} id=${event.id} />`}`;
}

/** Label, component and colour of an event, by kind. */
const KINDS = {
  MessageEvent: { show: Message, look: "message" },
  ActionEvent: { show: Action, look: "action" },
  ObservationEvent: { label: "Result", show: Observation, look: "observation" },
  UserRejectObservation: { label: "Rejected", show: Rejection, look: "bad" },
  AgentErrorEvent: { label: "The tool failed", show: EventFault, look: "bad" },
  ConversationErrorEvent: { label: "Error", show: EventFault, look: "bad" },
  SystemPromptEvent: { show: SystemPrompt, look: "change" },
  ConversationStateUpdateEvent: { show: Change, look: "change" },
  PauseEvent: { show: () => "Paused", look: "change" },
  InterruptEvent: { show: () => "Interrupted", look: "change" },
  Condensation: { label: "Memory", show: Condensed, look: "observation" },
  CondensationRequest: { show: () => "The agent is asked to shorten what it remembers", look: "change" },
  CondensationSummaryEvent: { label: "Memory", show: Condensed, look: "observation" },
  HookExecutionEvent: { label: "Hook", show: Hook, look: "observation" },
};

const OTHER = { show: ({ event }) => html`<${Json} value=${event} />`, look: "observation" };

/** Look up a kind. An agent chooses its kinds freely, so a kind may be named like a member of Object. */
function known(kind) {
  return Object.hasOwn(KINDS, kind) ? KINDS[kind] : OTHER;
}

export function lookOf(event) {
  return known(kindOf(event)).look;
}

/**
 * Whether this server sent a message, to tell an agent what is allowed now. The agent reports it as a person's message.
 */
const isOfServer = (event) =>
  event.source === "user" && String(event.llm_message?.content?.[0]?.text).startsWith("This server says: ");

/** Label of an event. */
export function Label({ event }) {
  const kind = kindOf(event);
  if (kind === "MessageEvent" && isOfServer(event)) return "Server";
  if (kind === "MessageEvent") {
    const person = isOpen(me.get()?.name) ? "You" : "Person";
    return event.sender || { user: person, agent: "Agent" }[event.source] || "Environment";
  }
  if (kind === "ActionEvent")
    return html`<code><${Text} text=${beginning(String(event.tool_name ?? ""), 200)} /></code>`;
  if (kind === "ConversationErrorEvent" && event.code)
    return html`<span title=${visible(beginning(String(event.code), 200))}>Error</span>`;
  if (kind === "UserRejectObservation" && event.rejection_source === "hook") return "Rejected by a hook";
  return known(kind).label ?? html`<${Text} text=${beginning(kind, 200)} />`;
}

/** The exit code of a command that still runs. Source: the published terminal tool. */
const GOES_ON = -1;

/** The outcome of a result: its exit code, or that it failed. isBrief: show nothing after a success. */
export function EventOutcome({ event, isBrief = false }) {
  const code = event.observation?.exit_code,
    isRunning = code === GOES_ON && !event.observation.is_error,
    isFailed = event.observation?.is_error || (Number.isInteger(code) && code !== 0 && !isRunning);
  if (isRunning) return html`<span class="muted">still running</span>`;
  if (isBrief && !isFailed) return null;
  if (Number.isInteger(code)) return html`<span class=${isFailed ? "high" : "muted"}>exit code ${code}</span>`;
  return isFailed ? html`<span class="high">failed</span>` : null;
}

/** Label, outcome and time of an event. onFork(isBack): undefined if forks are not offered. */
export function Head({ event, onFork }) {
  return html`<div class="head">
    <span class="label"><${Label} event=${event} /></span>
    <${EventOutcome} event=${event} />
    <${Here} id=${event.id} onFork=${onFork} />
    <${Clock} at=${event.timestamp} />
  </div>`;
}

/** Content of an event. isTalk: show messages as Markdown. */
export function EventBody({ event, results = [], isTalk = false }) {
  const { show: Show } = known(kindOf(event));
  return html`<div class="body"><${Show} event=${event} results=${results} isTalk=${isTalk} /></div>`;
}

/**
 * A row of the view "All events": an event, and the results of an action. There are hundreds of rows, so a row is only
 * rendered again if its properties have changed. onFork(row, isBack).
 */
export class EventRow extends Component {
  shouldComponentUpdate(next) {
    return ["row", "isTalk", "isFocus", "waits", "onFork"].some((name) => next[name] !== this.props[name]);
  }

  render({ row, isTalk = false, isFocus, waits, onFork }) {
    const { event, results } = row;
    const look = `event ${lookOf(event)} ${event.source ?? ""}${isFocus ? " focus" : ""}`;
    return html`<li class=${look} data-testid=${`event-${event.id}`} data-kind=${kindOf(event)} tabindex="-1">
      <${Head} event=${event} onFork=${onFork && ((isBack) => onFork(row, isBack))} />
        ${
          waits
            ? html`<${Waits} event=${event} />`
            : html`<${EventBody} event=${event} results=${results} isTalk=${isTalk} />`
        }
    </li>`;
  }
}
