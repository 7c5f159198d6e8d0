// How a start goes on: each of its states, what failed, and the ways on.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";
import { STATES, STEPS } from "../lib/start_words.js";
import { end, start } from "../lib/starts.js";
import { Failure } from "./notices.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** The states that every start has. */
const MAIN = ["WORKING", "WAITING_FOR_SANDBOX", "STARTING_CONVERSATION", "READY"];

function words({ asked, task, step, sent, error }) {
  if (error || task?.status === "ERROR")
    return step === "start" ? STATES.ERROR : `${STATES.READY}, but ${STEPS[step][1]}`;
  if (step === "files" && asked.files > 1)
    return `${STEPS.files[0]}: ${(sent ?? 0) + 1} of ${asked.files.toLocaleString("en")}`;
  return STEPS[step]?.[0] ?? STATES[task?.status ?? "WORKING"] ?? task.status;
}

/** The states of a start so far, the present one last, and the main ones that are still to come. */
function Steps({ status }) {
  const order = Object.keys(STATES),
    present = order.indexOf(status);
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
    ${
      lines.length > 0 &&
      html`<pre class="log" tabindex="0" aria-label="Last lines of the log"><${Text} text=${lines.join("\n")} /></pre>`
    }`;
}

/** Why a start that goes on waits. */
function StartWait({ task }) {
  if (!task.detail) return null;
  const isAsked = task.status === "PREPARING_REPOSITORY";
  return html`<p data-testid="start-waits"><${Text} prose text=${task.detail} />${
    isAsked && html` <a href=${href("inbox")}>Open the inbox</a>`
  }</p>`;
}

/**
 * A way to end a start that goes on. What it says after a refusal is true until the next state of the start is there.
 */
function EndStart() {
  const [state, setState] = useState({ isAsked: false, error: null });
  const ask = () => {
    setState({ isAsked: true, error: null });
    end().catch((error) => setState({ isAsked: false, error }));
  };
  return html`${state.error && html`<${Failure} error=${state.error} />`}
    <footer><button type="button" class="quiet" data-testid="end-start" disabled=${state.isAsked}
      aria-busy=${state.isAsked} onClick=${ask}>End this start</button></footer>`;
}

/** Why the task of a start failed, and the ways on. onWithout: where its repository kept it from starting. */
function Failed({ task, onAgain, onWithout }) {
  const isClone = task.failed_in === "PREPARING_REPOSITORY" && Boolean(task.request.selected_repository);
  return html`<${Detail} text=${task.detail ?? "The server gives no reason."} />
    <p class="muted">What you typed is still there.</p>
    <footer>
      ${
        isClone &&
        html`<button type="button" class="secondary" data-testid="start-without"
          onClick=${onWithout}>Start without it</button>`
      }
      <button type="button" data-testid="start-again" onClick=${onAgain}>Try again</button>
    </footer>`;
}

/** isMarked: the form shows what failed, at its fields. onWithout: starts without the repository. */
export function Progress({ present, isMarked, onAgain, onFinish, onWithout }) {
  const element = useRef(null),
    { task, error } = present;
  const isFailed = Boolean(error) || task?.status === "ERROR",
    status = task?.status ?? "WORKING";
  useEffect(() => element.current.scrollIntoView({ block: "nearest" }), [isFailed]);
  return html`<section ref=${element} class="card progress" aria-label="The start">
    <div role="status"><h2 data-testid="start-state" data-state=${isFailed ? "ERROR" : status}>
      ${words(present)}${
        task && !isFailed ? html` <span class="muted">asked <${Time} at=${task.created_at} /></span>` : null
      }
    </h2></div>
    ${!isFailed && html`<${Steps} status=${status} />`}
    ${!isFailed && task && status !== "READY" && html`<${StartWait} task=${task} /><${EndStart} key=${task.id} />`}
    ${task?.status === "ERROR" && html`<${Failed} task=${task} onAgain=${onAgain} onWithout=${onWithout} />`}
    ${
      error &&
      (isMarked
        ? html`<p role="alert">Nothing was started: correct what is marked in the form.</p>`
        : html`<${Failure} error=${error} again=${task ? onFinish : onAgain} />`)
    }
    ${
      error &&
      task?.status === "READY" &&
      html`<p><a href=${href("conversations", task.app_conversation_id)}
        onClick=${() => start.set(null)}>Open the conversation</a> as it is.</p>`
    }
  </section>`;
}
