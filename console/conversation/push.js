// The work leaves as a branch, and as a pull request where the repository's host has one: the questions before it, and
// where it went.
import { useEffect, useState } from "preact/hooks";
import { call, newKey } from "../lib/api.js";
import { html } from "../lib/html.js";
import { beginning } from "../lib/visible.js";
import { Dialog } from "../parts/dialog.js";
import { Failure } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { partsOf } from "./content.js";
import { MOST_TITLE } from "./heading.js";
import { Pushed } from "./pushed.js";

/** Maximum length of the proposed description, which is the agent's last message, in characters. */
const MOST_TEXT = 5_000;

/** Read the remote that the work can be pushed to, and the proposed names. Throws ApiError. */
async function proposal(id, signal) {
  const path = { conversation_id: id };
  const remote = await call("GET /api/v1/app-conversations/{conversation_id}/git/remote", { path, signal });
  const query = { kind: "MessageEvent", source: "agent", sort_order: "TIMESTAMP_DESC", limit: 1 };
  const { items } = await call("GET /api/conversations/{conversation_id}/events/search", { path, query, signal });
  const { text } = partsOf(items[0]?.llm_message?.content);
  const words = { title: remote.proposed_title, branch: remote.proposed_branch, description: text };
  return { remote, words: { ...words, description: beginning(text.trim(), MOST_TEXT) } };
}

export function Push({ id, onClose }) {
  const [{ remote, words, error }, setState] = useState(/** @type {any} */ ({})),
    [opens, setOpens] = useState(true);
  const [isBusy, setBusy] = useState(false),
    [fault, setFault] = useState(""),
    [made, setMade] = useState(null);
  const [once, setOnce] = useState(newKey);
  const read = () => {
    const ending = new AbortController();
    setState({});
    proposal(id, ending.signal).then(
      (found) => setState(found),
      (failed) => ending.signal.aborted || setState({ error: failed }),
    );
    return () => ending.abort();
  };
  useEffect(read, [id]);
  const set = (name) => (event) => {
    setState({ remote, words: { ...words, [name]: event.target.value } });
    setOnce(newKey());
  };
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFault("");
    const { path, url } = remote;
    const body = { ...words, path, url, pull_request: opens && !remote.lacks };
    try {
      const options = { path: { conversation_id: id }, body, once, isLong: true };
      setMade(await call("POST /api/v1/app-conversations/{conversation_id}/git/push", options));
    } catch (failed) {
      setFault(failed.message);
      if (failed.status) setOnce(newKey()); // without a response it may have gone: the same key sends it once
    }
    setBusy(false);
  };
  let body = html`<p aria-busy="true">Looking at the repository</p>`;
  if (error?.status === 409) body = html`<p data-testid="push-refused"><${Text} prose text=${error.message} />.</p>`;
  else if (error) body = html`<${Failure} error=${error} again=${read} />`;
  else if (made) body = html`<p role="status" data-testid="pushed"><${Pushed} value=${made} /></p>`;
  else if (remote)
    body = html`<form id="push" class="push" onSubmit=${send}>
      <p>All changes of the folder that Git does not ignore leave as one commit in your name, to <code><${Text}
        text=${remote.url} /></code>. Nothing is overwritten there, and the audit has it.</p>
      <label>Branch <input name="branch" required maxlength="200" data-testid="push-branch" autocomplete="off"
        spellcheck="false" value=${words.branch} onInput=${set("branch")} /></label>
      <label>Title <input name="title" required maxlength=${MOST_TITLE} data-testid="push-title" value=${words.title}
        onInput=${set("title")} /></label>
      <label>Text <textarea name="description" rows="5" maxlength="20000" data-testid="push-text"
        value=${words.description} onInput=${set("description")}></textarea></label>
      <label><input type="checkbox" data-testid="push-request" disabled=${Boolean(remote.lacks)}
        checked=${opens && !remote.lacks}
        onChange=${(event) => setOpens(event.target.checked)} />Open a pull
        request${remote.base && html` into <code><${Text} text=${remote.base} /></code>`}</label>
      ${remote.lacks && html`<p class="muted"><${Text} prose text=${remote.lacks} />.</p>`}
      ${fault && html`<p class="high" role="alert" data-testid="push-fault"><${Text} prose text=${fault} /></p>`}
    </form>`;
  return html`<${Dialog} title="Push the work as a branch" onClose=${onClose} data-testid="push-dialog">
    ${body}
    <footer>
      <button type="button" class="secondary" data-testid="push-close" onClick=${onClose}>
        ${made || error ? "Close" : "Cancel"}</button>
      ${
        remote &&
        !made &&
        html`<button type="submit" form="push" data-testid="push-send" aria-busy=${isBusy}
        disabled=${isBusy}>${opens && !remote.lacks ? "Push and open the pull request" : "Push the branch"}</button>`
      }
    </footer>
  <//>`;
}
