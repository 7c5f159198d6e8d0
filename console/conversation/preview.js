// A preview: what a program in the conversation's sandbox serves at a port, in a tab that knows nothing of this page.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { ours } from "../lib/root.js";
import { Loading } from "../parts/notices.js";

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

/** The ports at which programs of the sandbox listen; null where its agent server cannot tell. */
async function listening(id, signal) {
  const path = { sandbox_id: await sandboxOf(id, signal) };
  const { ports } = await call("GET /api/v1/sandboxes/{sandbox_id}/ports", { path, signal });
  return ports;
}

function Ports({ found: { value: ports, error }, onChoose }) {
  if (error) return html`<p class="muted" data-testid="no-ports">${error.message}</p>`;
  if (ports === undefined) return html`<${Loading} words="Looking for open ports" />`;
  if (!ports?.length)
    return html`<p class="muted" data-testid="no-ports">No program in the sandbox listens at a port yet. Have the agent start one.</p>`;
  return html`<p>Open ports: ${ports.map((port) => html`<button type="button" key=${port} class="quiet" data-testid=${`port-${port}`} onClick=${() => onChoose(port)}>${port}</button> `)}</p>`;
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
      const made = await call("POST /api/v1/sandboxes/{sandbox_id}/previews", {
        path: { sandbox_id: await sandboxOf(id) },
        body: { port: Number(chosen) },
      });
      kept.set(id, String(chosen));
      window.open(made.url, "_blank", "noopener,noreferrer");
      setState({
        said: `Port ${chosen} was opened in a new tab. If there is none, let this page open tabs, and press Open again.`,
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
      <span class="muted">What a program in the sandbox serves, in a new tab. Its pages reach nothing of this server. Opening one is audited.</span>
      <button type="button" class="quiet" data-testid="ports-again" onClick=${found.again}>Refresh</button></header>
    <form onSubmit=${submit}>
      <label>Port <input type="number" inputmode="numeric" required min=${LEAST} max=${MOST} placeholder="8000" data-testid="preview-port" value=${port} onInput=${(event) => setPort(event.target.value)} /></label>
      <button type="submit" data-testid="preview-open" aria-busy=${state.isBusy} disabled=${state.isBusy}>Open</button>
    </form>
    <${Ports} found=${found} onChoose=${open} />
    ${state.error && html`<p class="fault" role="alert" data-testid="preview-error">${state.error}</p>`}
    ${state.said && html`<p role="status" data-testid="preview-said">${state.said}</p>`}
  </section>`;
}
