// The form of a start: a message, who works on it, and what it asks about. All else is folded.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { approvalsFor, examplesFor, isRuled, withExample } from "../lib/examples.js";
import { html } from "../lib/html.js";
import { useModes } from "../lib/modes.js";
import { may, me } from "../lib/session.js";
import { draft, faultsOf } from "../lib/starts.js";
import { useStore } from "../lib/store.js";
import { Copy } from "./copy.js";
import { StartFault, StartFiles, Repository, OtherFields, Secrets, wrong } from "./start_fields.js";

/** The id of the heading that names the message. */
export const HEADLINE = "start-headline";

/** Label of an agent: its name and version, and the id of its spec where the id says more. */
function named(id, agent) {
  if (!agent) return id;
  const words = [agent.title, agent.version].filter(Boolean).join(" ");
  return id === agent.name ? words : `${words} (${id})`;
}

/** Which actions an agent asks about, in a sentence. */
function asking({ asks, holds, passes }) {
  if (!asks) return "It never asks: only the way out of its sandbox holds it. Choose “Ask nothing”.";
  return passes && holds !== "every action" ? `It asks about: ${holds}. Unasked: ${passes}.` : "";
}

/** The models that the key keeps, by the names of their profiles; none where they cannot be read. */
function useModels() {
  const [models, setModels] = useState([]);
  useEffect(
    () =>
      void call("GET /api/profiles").then(
        ({ profiles }) => setModels(profiles),
        () => {},
      ),
    [],
  );
  return models;
}

/** A sentence of the server, whose code stands in backticks. */
const marked = (words) => words.split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

/** What the agent lacks, such as a model, and how to set it. */
function Missing({ missing }) {
  return html`<p class="missing" role="note" data-testid="missing">${marked(missing.words)} Start the server with${" "}
    <span class="command"><code>${missing.command}</code><${Copy} text=${() => missing.command} label="the command" />
      </span></p>`;
}

function Examples({ spec, onTake }) {
  const examples = examplesFor(spec);
  return html`<p class="examples">${examples.length > 0 && html`<span class="muted">Try</span>`}${examples.map(
    (
      example,
    ) => html`<button key=${example.label} type="button" class="chip" data-testid="example" title=${example.message}
      onClick=${() => onTake(example)}>${example.label}</button>`,
  )}</p>`;
}

/** Who works on it, and what it asks about. */
function StartChoices({ value, specs, spec, approvals, set, faults }) {
  const modes = approvals.some((one) => one.value === value.mode) ? value.mode : "";
  return html`<label>Agent
      <select name="spec" value=${spec?.id ?? ""} onChange=${set("spec")}>
        ${
          specs?.map(({ id, agent }) => html`<option key=${id} value=${id}>${named(id, agent)}</option>`) ??
          html`<option value="">Loading</option>`
        }
      </select>
    </label>
    ${
      may("approve") &&
      html`<label>Approval
      <select name="mode" value=${modes} onChange=${set("mode")} ...${wrong("mode", faults)}>
        ${approvals.map((one) => html`<option key=${one.value} value=${one.value}>${one.words}</option>`)}
      </select>
    </label>`
    }`;
}

/**
 * After a try that found something wrong, or a refusal, the first such field has the focus. Returns the ref of the
 * form.
 */
function useFocusOfFaults(tries, refused) {
  const form = useRef(null),
    names = Object.keys(refused).join();
  useEffect(() => {
    if (tries || names) form.current.querySelector("[aria-describedby^=fault-]")?.focus();
  }, [tries, names]);
  return form;
}

/**
 * isBusy: a start goes on. isBegun: one goes on or has failed. refused: what the server said of single fields, by
 * field.
 */
export function Form({ specs, isBusy, isBegun, refused, onStart }) {
  const value = useStore(draft),
    models = useModels(),
    modes = useModes(),
    field = useRef(null),
    [tries, setTries] = useState(0);
  const set = (name) => (event) => draft.set({ ...draft.get(), [name]: event.target.value });
  const spec = specs?.find(({ id }) => id === value.spec) ?? specs?.[0],
    approvals = approvalsFor(spec, modes);
  const own = tries ? faultsOf(value) : {},
    faults = Object.keys(own).length ? own : refused,
    form = useFocusOfFaults(tries, refused),
    hasModels = models.length > 0 && spec && !spec.command.includes("reference_agent");
  useEffect(() => field.current.focus({ preventScroll: true }), []); // `autofocus` counts once for a page
  const submit = (event) => {
    event.preventDefault();
    if (isBusy) return;
    const isWrong = Object.keys(faultsOf(value)).length > 0;
    setTries(isWrong ? tries + 1 : 0);
    if (!hasModels) draft.set({ ...draft.get(), model: "" });
    if (!isWrong) onStart();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  const take = (example) => {
    draft.set(withExample(draft.get(), example));
    field.current.focus();
  };
  const placeholder = isRuled(spec) ? "run: uname -a" : "Find out why the tests fail";
  const model = spec && spec === specs[0] && !hasModels && me.get()?.llm_model,
    told = [
      approvals.find((one) => one.value === value.mode)?.detail ?? approvals[0].detail,
      spec?.agent && asking(spec.agent),
      model && `Model: ${model}.`,
    ];
  return html`<form ref=${form} class="card start" onSubmit=${submit} onKeyDown=${onKeyDown}
    aria-label="New conversation">
      <fieldset disabled=${isBusy}>
        <textarea name="message" rows="3" ref=${field} aria-labelledby=${HEADLINE} placeholder=${placeholder}
          value=${value.message} onInput=${set("message")} ...${wrong("message", faults)}></textarea>
        <${StartFault} name="message" faults=${faults} />
        <div class="more">
          <${Repository} value=${value} set=${set} faults=${faults} />
          ${may("approve") && html`<${StartFiles} faults=${faults} />`}
          <${Secrets} faults=${faults} />
          <${OtherFields} value=${value} set=${set} faults=${faults} models=${hasModels ? models : []} />
        </div>
        <footer>
          <${StartChoices} value=${value} specs=${specs} spec=${spec} approvals=${approvals} set=${set}
            faults=${faults} />
          <button type="submit" data-testid="start" title="Keys: Ctrl+Enter" disabled=${isBusy}
            aria-busy=${isBusy}>Start</button>
        </footer>
        <${StartFault} name="mode" faults=${faults} />
      </fieldset>
    </form>
    <p class="hint told" data-testid="agent-asks">${told.filter(Boolean).join(" ")}</p>
    ${!isBegun && html`<${Examples} spec=${spec} onTake=${take} />`}
    ${!isBegun && spec?.missing && html`<${Missing} missing=${spec.missing} />`}`;
}
