// Start a conversation: one field is enough. Every state of the start is shown, and what failed with a way on.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useModes } from "../lib/modes.js";
import { go, href } from "../lib/router.js";
import { may, me } from "../lib/session.js";
import { STATES, STEPS } from "../lib/start_words.js";
import {
  begin,
  draft,
  end,
  faultsIn,
  faultsOf,
  files,
  finish,
  MOST_FILES,
  placed,
  secrets,
  start,
} from "../lib/starts.js";
import { useStore } from "../lib/store.js";
import { bytes, counted } from "../lib/words.js";
import { Failure, tell } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

const MAIN = ["WORKING", "WAITING_FOR_SANDBOX", "STARTING_CONVERSATION", "READY"];

/** The choice of a start without a mode. */
const OF_SPEC = {
  name: "",
  words: "As the agent’s spec says",
  detail: "The agent’s spec decides which actions wait for approval.",
};

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
  return isBundled(spec) && !("LLM_MODEL" in spec.initial_env);
}

/** Whether a spec runs the bundled agent with its own mind. */
function isBundled(spec) {
  return (
    spec?.command.includes("reference_agent") && !("ACP_AGENT" in spec.initial_env || "ACP_COMMAND" in spec.initial_env)
  );
}

/** What a person chooses by: the agent's name and version, and the id of its spec where that says more. */
function named(id, agent) {
  if (!agent) return id;
  const words = [agent.title, agent.version].filter(Boolean).join(" ");
  return id === agent.name ? words : `${words} (${id})`;
}

/** What holds an agent, in a sentence. */
function asking({ asks, holds, passes }) {
  if (!asks) return "It never asks: only the way out of its sandbox holds it. Choose “Never ask”.";
  return `It asks about: ${holds}. Unasked: ${passes}.`;
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

/** What is wrong with a field, under it; `wrong` ties the field to it. */
function Fault({ name, faults }) {
  return faults[name] && html`<p class="fault" id=${`fault-${name}`}>${faults[name]}</p>`;
}

const wrong = (name, faults) => (faults[name] ? { "aria-invalid": "true", "aria-describedby": `fault-${name}` } : {});

/** A part of the form that is closed until it is opened, or has something in it. number: of what it has, where it counts. */
function More({ title, number = 0, isFilled = number > 0, isWrong, children }) {
  const isOpen = useRef(isFilled);
  isOpen.current ||= isWrong;
  const show = ({ target }) =>
    target.open && target.contains(document.activeElement) && target.scrollIntoView({ block: "nearest" });
  return html`<details class="quiet" open=${isOpen.current} onToggle=${show}>
    <summary>${title}${number > 0 && ` (${number})`}</summary>
    <div>${children}</div>
  </details>`;
}

function Repository({ value, set, faults }) {
  return html`<${More} title="Repository" isFilled=${Boolean(value.repository.trim())} isWrong=${Boolean(faults.repository)}>
    <div class="pair">
      <label>Repository
        <input name="repository" maxlength="1024" placeholder="owner/name or a URL" autocomplete="off" spellcheck=${false} value=${value.repository} onInput=${set("repository")} ...${wrong("repository", faults)} />
      </label>
      <label>Branch (optional)
        <input name="branch" maxlength="1024" placeholder="The default branch" autocomplete="off" spellcheck=${false} value=${value.branch} onInput=${set("branch")} />
      </label>
    </div>
    <${Fault} name="repository" faults=${faults} />
    <p class="hint">It is cloned into a folder of its name, before the agent reads your message.</p>
  <//>`;
}

function Files({ faults }) {
  const chosen = useStore(files),
    several = useRef(null),
    folder = useRef(null);
  const take = (event) => {
    files.set(placed(event.target.files));
    event.target.value = ""; // the same ones may be chosen again
  };
  const size = chosen.reduce((sum, { file }) => sum + file.size, 0);
  return html`<${More} title="Files" number=${chosen.length} isWrong=${Boolean(faults.files)}>
    <input ref=${several} type="file" multiple hidden data-testid="start-files" onChange=${take} />
    <input ref=${folder} type="file" webkitdirectory hidden data-testid="start-folder" onChange=${take} />
    <p class="chosen" role="status">
      <button type="button" class="secondary" aria-describedby=${faults.files ? "fault-files" : null} onClick=${() => several.current.click()}>Choose files</button>
      <button type="button" class="secondary" onClick=${() => folder.current.click()}>Choose a folder</button>
      ${
        chosen.length > 0 &&
        html`<span>${chosen.length === 1 ? html`<${Text} text=${chosen[0].path} />` : counted(chosen.length, "file")}, ${bytes(size)}</span>
        <button type="button" class="quiet" data-testid="drop-files" onClick=${() => files.set([])}>Remove</button>`
      }
    </p>
    <${Fault} name="files" faults=${faults} />
    <p class="hint">Uploaded into the working folder before the first message, at most ${MOST_FILES}. An archive (.zip, .tar, .tar.gz) is unpacked there. From a folder, .git and node_modules are left out.</p>
  <//>`;
}

function Secrets({ faults }) {
  const rows = useStore(secrets),
    shown = rows.length ? rows : [{ name: "", value: "" }];
  const put = (place, members) => secrets.set(shown.map((row, at) => (at === place ? { ...row, ...members } : row)));
  const drop = (place) => secrets.set(rows.filter((_, at) => at !== place));
  return html`<${More} title="Secrets" number=${rows.filter(({ name, value }) => name || value).length} isWrong=${Boolean(faults.secrets)}>
    ${shown.map(
      ({ name, value }, place) => html`<div key=${place} class="secret">
      <input name="secret-name" aria-label=${`Name of secret ${place + 1}`} placeholder="GITHUB_TOKEN" autocomplete="off" spellcheck=${false} value=${name} onInput=${(event) => put(place, { name: event.target.value })} ...${wrong("secrets", faults)} />
      <input name="secret-value" type="password" aria-label=${`Value of secret ${place + 1}`} placeholder="Value" autocomplete="new-password" value=${value} onInput=${(event) => put(place, { value: event.target.value })} />
      ${rows.length > 0 && html`<button type="button" class="quiet" aria-label=${`Remove secret ${place + 1}`} onClick=${() => drop(place)}>Remove</button>`}
    </div>`,
    )}
    <${Fault} name="secrets" faults=${faults} />
    <p class="hint">Each is an environment variable of the agent’s commands. No page shows its value again, and a reload of this one forgets it.${" "}
      <button type="button" class="quiet" data-testid="add-secret" onClick=${() => secrets.set([...shown, { name: "", value: "" }])}>Add another</button></p>
  <//>`;
}

function Message({ value, spec, set, faults }) {
  const example = "run: uname -a",
    field = useRef(null);
  useEffect(() => field.current.focus(), []); // `autofocus` counts once for a page
  return html`<label>What should the agent do?
      <textarea name="message" rows="4" ref=${field} placeholder=${isRuled(spec) ? example : "Find out why the tests fail"} value=${value.message} onInput=${set("message")} ...${wrong("message", faults)}></textarea>
    </label>
    <${Fault} name="message" faults=${faults} />
    <p class="hint">${
      isRuled(spec) &&
      html`No model is set: the agent only runs lines that begin with <code>run: </code>. Start the server with <code>LLM_MODEL=… LLM_API_KEY=…</code> for one that thinks.${" "}
      <button type="button" class="quiet" onClick=${() => draft.set({ ...draft.get(), message: example })}>Use “${example}”</button>`
    }</p>`;
}

/** refused: what the server said of single fields, in words by field. */
function Form({ specs, isBusy, refused, onStart }) {
  const value = useStore(draft),
    models = useModels(),
    modes = [OF_SPEC, ...useModes()],
    form = useRef(null),
    [own, setOwn] = useState({});
  const set = (name) => (event) => draft.set({ ...draft.get(), [name]: event.target.value });
  const spec = specs?.find(({ id }) => id === value.spec) ?? specs?.[0];
  const faults = Object.keys(own).length ? own : refused,
    hasModels = models.length > 0 && spec && !spec.command.includes("reference_agent");
  const submit = (event) => {
    event.preventDefault();
    if (isBusy) return;
    const found = faultsOf(value);
    setOwn(found);
    if (!hasModels) draft.set({ ...draft.get(), model: "" });
    if (!Object.keys(found).length) onStart();
  };
  const marked = Object.keys(faults).join();
  useEffect(() => void (marked && form.current.querySelector("[aria-describedby^=fault-]")?.focus()), [marked]);
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  return html`<form ref=${form} class="card start" onSubmit=${submit} onKeyDown=${onKeyDown} aria-label="Start a conversation">
    <fieldset disabled=${isBusy}>
      <${Message} value=${value} spec=${spec} set=${set} faults=${faults} />
      <div class="pair">
        <label>Title (optional)
          <input name="title" maxlength="200" placeholder="The first line of the message" autocomplete="off" value=${value.title} onInput=${set("title")} ...${wrong("title", faults)} />
          <${Fault} name="title" faults=${faults} />
        </label>
        <label>Agent
          <select name="spec" value=${spec?.id ?? ""} onChange=${set("spec")}>
            ${specs?.map(({ id, agent }) => html`<option key=${id} value=${id}>${named(id, agent)}</option>`) ?? html`<option value="">Loading</option>`}
          </select>
          ${spec?.agent?.passes && html`<span class="hint" data-testid="agent-asks">${asking(spec.agent)}</span>`}
          ${spec && spec === specs[0] && !hasModels && me.get()?.llm_model && html`<span class="hint">Model: ${me.get().llm_model}</span>`}
        </label>
      </div>
      ${
        may("approve") &&
        html`<label>Approval
        <select name="mode" value=${value.mode} onChange=${set("mode")} ...${wrong("mode", faults)}>
          ${modes.map(({ name, words }) => html`<option key=${name} value=${name}>${words}</option>`)}
        </select>
      </label>
      <${Fault} name="mode" faults=${faults} />
      <p class="hint">${modes.find(({ name }) => name === value.mode)?.detail}</p>`
      }
      <label class="choice" title="A destination or a budget: the agent is told when a person allows it."><input type="checkbox" name="goes-on" checked=${!value.stays} onChange=${({ target }) => draft.set({ ...draft.get(), stays: !target.checked })} />
        Go on by itself once what stopped it is allowed</label>
      ${
        hasModels &&
        html`<label>Model
        <select name="model" value=${value.model} onChange=${set("model")}>
          <option value="">As the agent’s spec says</option>
          ${models.map(({ name, model }) => html`<option key=${name} value=${name}>${model && model !== name ? `${name} (${model})` : name}</option>`)}
        </select>
      </label>`
      }
      <div class="more">
        <${Repository} value=${value} set=${set} faults=${faults} />
        ${may("approve") && html`<${Files} faults=${faults} />`}
        <${Secrets} faults=${faults} />
        <${More} title="Tags" number=${value.tags.split(",").filter((tag) => tag.trim()).length} isWrong=${Boolean(faults.tags)}>
          <label>Names and values, with commas between
            <input name="tags" placeholder="team=core, issue=12" autocomplete="off" value=${value.tags} onInput=${set("tags")} ...${wrong("tags", faults)} />
          </label>
          <${Fault} name="tags" faults=${faults} />
        <//>
      </div>
    </fieldset>
    <footer><span class="hint">or press Ctrl+Enter</span><button type="submit" data-testid="start" disabled=${isBusy} aria-busy=${isBusy}>Start</button></footer>
  </form>`;
}

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

/** isMarked: the form shows what failed, at its fields. */
function Progress({ present, isMarked, onAgain, onFinish }) {
  const { task, error } = present;
  const isFailed = Boolean(error) || task?.status === "ERROR";
  const status = task?.status ?? "WORKING";
  return html`<section class="card progress" aria-label="The start">
    <div role="status"><h2 data-testid="start-state" data-state=${isFailed ? "ERROR" : status}>
      ${words(present)}${task && !isFailed ? html` <span class="muted">asked <${Time} at=${task.created_at} /></span>` : null}
    </h2></div>
    ${!isFailed && html`<${Steps} status=${status} />`}
    ${!isFailed && task && status !== "READY" && html`<${End} key=${task.id} />`}
    ${
      task?.status === "ERROR" &&
      html`<${Detail} text=${task.detail ?? "The server gives no reason."} />
      <p class="muted">What you typed is still there.</p>
      <footer><button type="button" onClick=${onAgain}>Try again</button></footer>`
    }
    ${error && (isMarked ? html`<p role="alert">Nothing was started: correct what is marked in the form.</p>` : html`<${Failure} error=${error} again=${task ? onFinish : onAgain} />`)}
    ${error && task?.status === "READY" && html`<p><a href=${href("conversations", task.app_conversation_id)} onClick=${() => start.set(null)}>Open the conversation</a> as it is.</p>`}
  </section>`;
}

export default function View() {
  const present = useStore(start);
  const { specs, error, read } = useSpecs();
  const left = useRef(null);
  const follow = async (doing) => {
    const { signal } = left.current;
    const done = await doing(signal);
    if (done?.notDone) tell(done.notDone, "failed");
    if (done && !signal.aborted) go("conversations", done.id);
  };
  useEffect(() => {
    left.current = new AbortController();
    if (start.get() && !start.get().error) follow(finish); // the person came back to a start that goes on
    return () => left.current.abort();
  }, []);
  const refused = present?.task ? {} : faultsIn(present?.error);
  const isBusy = Boolean(present) && !present.error && present.task?.status !== "ERROR";
  return html`
    <div class="view-head"><h1>Start a conversation</h1></div>
    <div class="start-view">
      ${error ? html`<${Failure} error=${error} again=${read} />` : html`<${Form} specs=${specs} isBusy=${isBusy} refused=${refused} onStart=${() => follow(begin)} />`}
      ${present && html`<${Progress} present=${present} isMarked=${Object.keys(refused).length > 0} onAgain=${() => follow(begin)} onFinish=${() => follow(finish)} />`}
    </div>
  `;
}
