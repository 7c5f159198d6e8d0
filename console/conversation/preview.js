// A preview: what a program in the conversation's sandbox serves at a port, in a tab that knows nothing of this page.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { ours } from "../lib/root.js";
import { Loading } from "../parts/notices.js";
import { Text } from "../parts/text.js";

/** Ports that can have a preview. */
const LEAST = 1024,
  MOST = 65535;

/** The port that was shown last, as long as the tab lives. */
const kept = {
  name: (id) => ours(`agent-server-preview ${id}`),
  get: (id) => sessionStorage.getItem(kept.name(id)) ?? "",
  set: (id, port) => sessionStorage.setItem(kept.name(id), port),
};

/** The id of a conversation's sandbox. Throws where it has none. */
async function sandboxOf(id, signal = undefined) {
  const [conversation] = await call("GET /api/v1/app-conversations", { query: { ids: id }, signal });
  if (!conversation?.sandbox_id)
    throw new Error("This conversation has no sandbox: an external program posts the events.");
  return conversation.sandbox_id;
}

/** The ports at which programs of the sandbox listen, and the command line of each: {ports, programs}. */
async function listening(id, signal) {
  const path = { sandbox_id: await sandboxOf(id, signal) };
  return await call("GET /api/v1/sandboxes/{sandbox_id}/ports", { path, signal });
}

/** The address of a preview, which is good once. Throws ApiError. */
async function addressOf(id, port) {
  const path = { sandbox_id: await sandboxOf(id) };
  const { url } = await call("POST /api/v1/sandboxes/{sandbox_id}/previews", { path, body: { port: Number(port) } });
  kept.set(id, String(port));
  return url;
}

/** A port at which a program listens. open(port): opens it. */
function Port({ id, port, program, isBusy, open, onFault }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(await addressOf(id, port));
      setCopied(true);
    } catch (fault) {
      onFault(fault.message);
    }
  };
  return html`<li class="port" data-testid=${`listens-${port}`}>
    <strong>${port}</strong> <code>
      ${program ? html`<${Text} text=${program} />` : html`<span class="muted">A program of the sandbox</span>`}</code>
    <button type="button" data-testid=${`port-${port}`} disabled=${isBusy} onClick=${() => open(port)}>Open</button>
    ${
      navigator.clipboard &&
      html`<button type="button" class="quiet"
      title="A link that opens it once, within 30 seconds" onClick=${copy}>
      ${isCopied ? "Copied" : "Copy link"}</button>`
    }
  </li>`;
}

function Ports({ found: { value, error }, ...others }) {
  if (error) return html`<p class="muted" data-testid="no-ports">${error.message}</p>`;
  if (!value) return html`<${Loading} words="Looking for open ports" />`;
  if (!value.ports?.length)
    return html`<p class="muted"
      data-testid="no-ports">No program in the sandbox listens at a port yet. Have the agent start one.</p>`;
  return html`<ul class="ports" aria-label="Open ports">
    ${value.ports.map(
      (port) => html`<${Port} key=${port} port=${port} program=${value.programs?.[port]} ...${others} />`,
    )}
  </ul>`;
}

/** id: of the conversation. */
export default function Preview({ id }) {
  const [port, setPort] = useState(kept.get(id)),
    found = useRead((signal) => listening(id, signal), { key: id });
  const [state, setState] = useState(/** @type {any} */ ({}));
  const open = async (chosen) => {
    setPort(String(chosen));
    setState({ isBusy: true });
    try {
      window.open(await addressOf(id, chosen), "_blank", "noopener,noreferrer");
      setState({
        said:
          `Port ${chosen} was opened in a new tab. If there is none, ` +
          "let this page open tabs, and press Open again.",
      });
    } catch (fault) {
      setState({ error: fault.message });
    }
  };
  const submit = (event) => {
    event.preventDefault();
    open(port);
  };
  return html`<section class="beside preview-ports" aria-label="Preview" data-testid="preview-panel">
    <header><strong>Preview</strong>
      <span class="muted">What a program in the sandbox serves, in a new tab. Its pages reach nothing of this server.
        Opening one is audited.</span>
      <button type="button" class="quiet" data-testid="ports-again" onClick=${found.again}>Refresh</button></header>
    <${Ports} id=${id} found=${found} isBusy=${state.isBusy} open=${open} onFault=${(error) => setState({ error })} />
    <details class="other-port" open=${found.error || undefined}><summary
      data-testid="other-port">Another port</summary>
      <form onSubmit=${submit}>
        <label>Port <input type="number" inputmode="numeric" required min=${LEAST} max=${MOST} placeholder="8000"
          data-testid="preview-port" value=${port} onInput=${(event) => setPort(event.target.value)} /></label>
        <button type="submit" data-testid="preview-open" aria-busy=${state.isBusy}
          disabled=${state.isBusy}>Open</button>
      </form>
    </details>
    ${state.error && html`<p class="fault" role="alert" data-testid="preview-error">${state.error}</p>`}
    ${state.said && html`<p role="status" data-testid="preview-said">${state.said}</p>`}
  </section>`;
}
