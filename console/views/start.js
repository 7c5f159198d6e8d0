// Start a conversation: one field is enough. Every state of the start is shown, and what failed with a way on.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { go, href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { begin, draft, end, finish, start } from "../lib/starts.js";
import { useStore } from "../lib/store.js";
import { Failure } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** The states of a start task in words; those that are passed without work are shown when they come. */
const STATES = {
  WORKING: "A supervisor takes the start up",
  WAITING_FOR_SANDBOX: "The sandbox starts",
  PREPARING_REPOSITORY: "The agent prepares the repository",
  RUNNING_SETUP_SCRIPT: "The setup script runs",
  SETTING_UP_GIT_HOOKS: "The Git hooks are set up",
  SETTING_UP_SKILLS: "The skills are set up",
  STARTING_CONVERSATION: "The agent begins the conversation",
  READY: "The agent is ready",
  ERROR: "The start failed",
};

/** What is done after the agent is ready. */
const STEPS = { policy: "The confirmation policy is set", message: "The first message is sent" };

const MAIN = ["WORKING", "WAITING_FOR_SANDBOX", "STARTING_CONVERSATION", "READY"];

const POLICIES = [
  ["", "What the agent’s spec says", "The spec that you choose decides what waits for an approval."],
  ["AlwaysConfirm", "Ask before every action", "Nothing runs before a person approved it."],
  ["ConfirmRisky", "Ask before risky actions", "Actions of medium, high or unknown risk wait for an approval. The agent rates the risk."],
  ["NeverConfirm", "Never ask", "The agent runs everything at once. Its sandbox alone holds it."],
];

function useSpecs() {
  const [state, setState] = useState({ specs: null, error: null });
  const read = () => {
    setState({ specs: null, error: null });
    call("GET /api/v1/sandbox-specs/search", { query: { limit: 100 } }).then(
      ({ items }) => setState({ specs: items, error: null }),
      (error) => setState({ specs: null, error }),
    );
  };
  useEffect(read, []);
  return { ...state, read };
}

/** Whether a spec's agent has no model: then it follows a rule, which the form explains. */
function isRuled(spec) {
  return spec?.command.includes("reference_agent") && !("LLM_MODEL" in spec.initial_env);
}

function Message({ value, spec, set }) {
  const example = "run: uname -a", field = useRef(null);
  useEffect(() => field.current.focus(), []); // `autofocus` counts once for a page
  return html`<label>What should the agent do?
      <textarea name="message" rows="4" ref=${field} placeholder=${isRuled(spec) ? example : "Find out why the tests fail"} value=${value.message} onInput=${set("message")}></textarea>
    </label>
    <p class="hint">${isRuled(spec) && html`This agent has no model: it proposes each line <code>run: COMMAND</code> as an action.${" "}
      <button type="button" class="quiet" onClick=${() => draft.set({ ...draft.get(), message: example })}>Take “${example}”</button>`}</p>`;
}

function Form({ specs, isBusy, onStart }) {
  const value = useStore(draft), hadTags = useRef(Boolean(value.tags));
  const set = (name) => (event) => draft.set({ ...draft.get(), [name]: event.target.value });
  const spec = specs?.find(({ id }) => id === value.spec) ?? specs?.[0];
  const submit = (event) => {
    event.preventDefault();
    if (!isBusy) onStart();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  return html`<form class="card start" onSubmit=${submit} onKeyDown=${onKeyDown} aria-label="Start a conversation">
    <fieldset disabled=${isBusy}>
      <${Message} value=${value} spec=${spec} set=${set} />
      <div class="pair">
        <label>Title (optional)
          <input name="title" maxlength="200" placeholder="A number if left empty" autocomplete="off" value=${value.title} onInput=${set("title")} />
        </label>
        <label>Agent
          <select name="spec" value=${spec?.id ?? ""} onChange=${set("spec")}>
            ${specs?.map(({ id }) => html`<option key=${id} value=${id}>${id}</option>`) ?? html`<option value="">Loading</option>`}
          </select>
        </label>
      </div>
      ${may("approve") && html`<label>Approval
        <select name="policy" value=${value.policy} onChange=${set("policy")}>
          ${POLICIES.map(([kind, words]) => html`<option key=${kind} value=${kind}>${words}</option>`)}
        </select>
      </label>
      <p class="hint">${POLICIES.find(([kind]) => kind === value.policy)[2]}</p>`}
      <details class="quiet" open=${hadTags.current}>
        <summary>Tags</summary>
        <label>Tags (optional)
          <input name="tags" placeholder="team=core, issue=12" autocomplete="off" value=${value.tags} onInput=${set("tags")} />
        </label>
      </details>
    </fieldset>
    <footer><span class="hint">Ctrl+Enter also starts it</span><button type="submit" data-testid="start" disabled=${isBusy} aria-busy=${isBusy}>Start</button></footer>
  </form>`;
}

function words({ task, step, error }) {
  if (error || task?.status === "ERROR") return step === "start" ? STATES.ERROR : `${STATES.READY}, but this failed: ${STEPS[step]}`;
  return STEPS[step] ?? STATES[task?.status ?? "WORKING"] ?? task.status;
}

/** The states of a start so far, the present one last, and the main ones that are still to come. */
function Steps({ status }) {
  const order = Object.keys(STATES), present = order.indexOf(status);
  const shown = order.filter((one) => one !== "ERROR" && (MAIN.includes(one) || one === status));
  return html`<ol class="steps">
    ${shown.map((one) => {
      const at = order.indexOf(one);
      const look = at < present || status === "READY" ? "past" : at === present ? "present" : "to-come";
      return html`<li key=${one} class=${look} aria-current=${look === "present" ? "step" : null}>${STATES[one]}</li>`;
    })}
  </ol>`;
}

/** What failed in a start task: a sentence, then the last lines of its sandbox's log. */
function Detail({ text }) {
  const [sentence, ...lines] = text.split("\n");
  return html`<p><${Text} prose text=${sentence} /></p>
    ${lines.length > 0 && html`<pre class="log" tabindex="0" aria-label="Last lines of the log"><${Text} text=${lines.join("\n")} /></pre>`}`;
}

/** A way to end a start that goes on. What it says after a refusal is true until the next state of the start is there. */
function End() {
  const [state, setState] = useState({ isAsked: false, error: null });
  const ask = () => {
    setState({ isAsked: true, error: null });
    end().catch((error) => setState({ isAsked: false, error }));
  };
  return html`${state.error && html`<${Failure} error=${state.error} />`}
    <footer><button type="button" class="quiet" data-testid="end-start" disabled=${state.isAsked} aria-busy=${state.isAsked} onClick=${ask}>End this start</button></footer>`;
}

function Progress({ present, onAgain, onFinish }) {
  const { task, step, error } = present;
  const isFailed = Boolean(error) || task?.status === "ERROR";
  const status = task?.status ?? "WORKING";
  return html`<section class="card progress" aria-label="The start">
    <h2 data-testid="start-state" data-state=${isFailed ? "ERROR" : status} role="status">
      ${words(present)}${task && !isFailed ? html` <span class="muted">asked <${Time} at=${task.created_at} /></span>` : null}
    </h2>
    ${!isFailed && html`<${Steps} status=${status} />`}
    ${!isFailed && task && status !== "READY" && html`<${End} key=${task.id} />`}
    ${task?.status === "ERROR" && html`<${Detail} text=${task.detail ?? "The server gives no reason."} />
      <p class="muted">What you typed is still there.</p>
      <footer><button type="button" onClick=${onAgain}>Try again</button></footer>`}
    ${error && html`<${Failure} error=${error} again=${task ? onFinish : onAgain} />`}
    ${error && task?.status === "READY" && html`<p><a href=${href("conversations", task.app_conversation_id)}>Open the conversation</a> as it is.</p>`}
  </section>`;
}

export default function View() {
  const present = useStore(start);
  const { specs, error, read } = useSpecs();
  const left = useRef(null);
  const follow = async (doing) => {
    const { signal } = left.current;
    const id = await doing(signal);
    if (id && !signal.aborted) go("conversations", id);
  };
  useEffect(() => {
    left.current = new AbortController();
    if (start.get() && !start.get().error) follow(finish); // the person came back to a start that goes on
    return () => left.current.abort();
  }, []);
  const isBusy = Boolean(present) && !present.error && present.task?.status !== "ERROR";
  return html`
    <div class="view-head"><h1>Start a conversation</h1></div>
    <div class="start-view">
      ${error ? html`<${Failure} error=${error} again=${read} />` : html`<${Form} specs=${specs} isBusy=${isBusy} onStart=${() => follow(begin)} />`}
      ${present && html`<${Progress} present=${present} onAgain=${() => follow(begin)} onFinish=${() => follow(finish)} />`}
    </div>
  `;
}
