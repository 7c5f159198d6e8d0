// The fields of a start that are folded until a person needs them.
import { useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { repositoryFault } from "../lib/repository.js";
import { draft, files, MOST_FILES, placed, secrets } from "../lib/starts.js";
import { useStore } from "../lib/store.js";
import { bytes, counted } from "../lib/words.js";
import { Text } from "./text.js";

/** What is wrong with a field, under it; `wrong` ties the field to it. */
export function StartFault({ name, faults }) {
  return faults[name] && html`<p class="fault" id=${`fault-${name}`}>${faults[name]}</p>`;
}

/** The attributes of a field that is wrong. */
export const wrong = (name, faults) =>
  faults[name] ? { "aria-invalid": "true", "aria-describedby": `fault-${name}` } : {};

/**
 * A part of the form that is closed until it is opened, or has something in it. number: of what it has, where it
 * counts.
 */
function Fold({ title, number = 0, isFilled = number > 0, isWrong = false, children }) {
  const isOpen = useRef(isFilled);
  isOpen.current ||= isWrong || isFilled;
  const show = ({ target }) =>
    target.open && target.contains(document.activeElement) && target.scrollIntoView({ block: "nearest" });
  return html`<details class="quiet" open=${isOpen.current} onToggle=${show}>
    <summary>${title}${number > 0 && ` (${number})`}</summary>
    <div>${children}</div>
  </details>`;
}

/** set(name): takes the input of a field. */
export function Repository({ value, set, faults }) {
  const [isLeft, setLeft] = useState(false);
  const typed = value.repository.trim(),
    shown = { repository: faults.repository || (isLeft && repositoryFault(typed)) };
  const input = (event) => {
    setLeft(false);
    set("repository")(event);
  };
  return html`<${Fold} title="Repository" isFilled=${Boolean(typed)} isWrong=${Boolean(shown.repository)}>
    <div class="pair">
      <label>Repository
        <input name="repository" maxlength="1024" placeholder="owner/name or a URL" autocomplete="off"
          spellcheck=${false}
          value=${value.repository} onInput=${input} onBlur=${() => setLeft(true)} ...${wrong("repository", shown)} />
      </label>
      <label>Branch (optional)
        <input name="branch" maxlength="1024" placeholder="The default branch" autocomplete="off" spellcheck=${false}
          value=${value.branch} onInput=${set("branch")} />
      </label>
    </div>
    <${StartFault} name="repository" faults=${shown} />
    <p class="hint">It is cloned into a folder of its name, before the agent reads your message.</p>
  <//>`;
}

export function StartFiles({ faults }) {
  const chosen = useStore(files),
    several = useRef(null),
    folder = useRef(null);
  const take = (event) => {
    files.set(placed(event.target.files));
    event.target.value = ""; // the same ones may be chosen again
  };
  const size = chosen.reduce((sum, { file }) => sum + file.size, 0),
    what = chosen.length === 1 ? html`<${Text} text=${chosen[0].path} />` : counted(chosen.length, "file");
  return html`<${Fold} title="Files" number=${chosen.length} isWrong=${Boolean(faults.files)}>
    <input ref=${several} type="file" multiple hidden data-testid="start-files" onChange=${take} />
    <input ref=${folder} type="file" webkitdirectory hidden data-testid="start-folder" onChange=${take} />
    <p class="chosen" role="status">
      <button type="button" class="secondary" aria-describedby=${faults.files ? "fault-files" : null}
        onClick=${() => several.current.click()}>Choose files</button>
      <button type="button" class="secondary" onClick=${() => folder.current.click()}>Choose a folder</button>
      ${
        chosen.length > 0 &&
        html`<span>${what}, ${bytes(size)}</span>
        <button type="button" class="quiet" data-testid="drop-files" onClick=${() => files.set([])}>Remove</button>`
      }
    </p>
    <${StartFault} name="files" faults=${faults} />
    <p class="hint">Uploaded into the working folder before the first message, at most ${MOST_FILES}. An archive (.zip,
      .tar, .tar.gz) is unpacked there. From a folder, .git and node_modules are left out.</p>
  <//>`;
}

export function Secrets({ faults }) {
  const rows = useStore(secrets),
    shown = rows.length ? rows : [{ name: "", value: "" }];
  const put = (place, members) => secrets.set(shown.map((row, at) => (at === place ? { ...row, ...members } : row)));
  const drop = (place) => secrets.set(rows.filter((_, at) => at !== place));
  const number = rows.filter(({ name, value }) => name || value).length;
  return html`<${Fold} title="Secrets" number=${number} isWrong=${Boolean(faults.secrets)}>
    ${shown.map(
      ({ name, value }, place) => html`<div key=${place} class="secret">
      <input name="secret-name" aria-label=${`Name of secret ${place + 1}`} placeholder="GITHUB_TOKEN"
        autocomplete="off"
        spellcheck=${false} value=${name} onInput=${(event) => put(place, { name: event.target.value })}
          ...${wrong("secrets", faults)} />
      <input name="secret-value" type="password" aria-label=${`Value of secret ${place + 1}`} placeholder="Value"
        autocomplete="new-password" value=${value} onInput=${(event) => put(place, { value: event.target.value })} />
      ${
        rows.length > 0 &&
        html`<button type="button" class="quiet" aria-label=${`Remove secret ${place + 1}`}
        onClick=${() => drop(place)}>Remove</button>`
      }
    </div>`,
    )}
    <${StartFault} name="secrets" faults=${faults} />
    <p class="hint">Each is an environment variable of the agent’s commands. No page shows its value again, and a reload
      of this one forgets it.${" "}
      <button type="button" class="quiet" data-testid="add-secret"
        onClick=${() => secrets.set([...shown, { name: "", value: "" }])}>Add another</button></p>
  <//>`;
}

/** What few starts need. models: those that its agent can take; empty: none. */
export function OtherFields({ value, set, faults, models }) {
  const { title, tags, model, stays } = value;
  return html`<${Fold} title="More" isFilled=${Boolean(title || tags || model || stays)}
    isWrong=${Boolean(faults.title || faults.tags)}>
    <label>Title
      <input name="title" maxlength="200" placeholder="The first line of the message" autocomplete="off" value=${title}
        onInput=${set("title")} ...${wrong("title", faults)} />
    </label>
    <${StartFault} name="title" faults=${faults} />
    <label>Tags
      <input name="tags" placeholder="team=core, issue=12" autocomplete="off" value=${tags} onInput=${set("tags")}
        ...${wrong("tags", faults)} />
    </label>
    <${StartFault} name="tags" faults=${faults} />
    ${
      models.length > 0 &&
      html`<label>Model
      <select name="model" value=${model} onChange=${set("model")}>
        <option value="">The agent’s default</option>
        ${models.map(
          (one) => html`<option key=${one.name} value=${one.name}>
          ${one.model && one.model !== one.name ? `${one.name} (${one.model})` : one.name}</option>`,
        )}
      </select>
    </label>`
    }
    <label class="choice" title="A destination or a budget: the agent is told when a person allows it.">
      <input type="checkbox" name="goes-on" checked=${!stays}
        onChange=${({ target }) => draft.set({ ...draft.get(), stays: !target.checked })} />
      Go on by itself once what stopped it is allowed</label>
  <//>`;
}
