// A preview: what a program in the conversation's sandbox serves at a port, in a tab that knows nothing of this page.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { ours } from "../lib/root.js";

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
async function sandboxOf(id) {
  const [conversation] = await call("GET /api/v1/app-conversations", { query: { ids: id } });
  if (!conversation?.sandbox_id)
    throw new Error("This conversation has no sandbox: an external program posts the events.");
  return conversation.sandbox_id;
}

/** The ports at which programs of the sandbox listen; null where its agent server cannot tell. */
async function listening(id) {
  const { ports } = await call("GET /api/v1/sandboxes/{sandbox_id}/ports", {
    path: { sandbox_id: await sandboxOf(id) },
  });
  return ports;
}

function Ports({ found, onChoose }) {
  if (found.error) return html`<p class="muted" data-testid="no-ports">${found.error}</p>`;
  if (!found.ports) return html`<p aria-busy="true">Looking for open ports</p>`;
  if (!found.ports.length)
    return html`<p class="muted" data-testid="no-ports">No program in the sandbox listens at a port yet. Have the agent start one.</p>`;
  return html`<p>Open ports: ${found.ports.map((port) => html`<button type="button" key=${port} class="quiet" data-testid=${`port-${port}`} onClick=${() => onChoose(port)}>${port}</button> `)}</p>`;
}

/** id: of the conversation. */
export default function Preview({ id }) {
  const [port, setPort] = useState(kept.get(id)),
    [found, setFound] = useState(/** @type {any} */ ({})),
    [number, setNumber] = useState(0);
  const [state, setState] = useState(/** @type {any} */ ({}));
  useEffect(() => {
    let isLate = false;
    setFound({});
    listening(id).then(
      (ports) => isLate || setFound({ ports }),
      (fault) => isLate || setFound({ error: fault.message }),
    );
    return () => (isLate = true);
  }, [id, number]);
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
      <button type="button" class="quiet" data-testid="ports-again" onClick=${() => setNumber(number + 1)}>Refresh</button></header>
    <form onSubmit=${submit}>
      <label>Port <input type="number" inputmode="numeric" required min=${LEAST} max=${MOST} placeholder="8000" data-testid="preview-port" value=${port} onInput=${(event) => setPort(event.target.value)} /></label>
      <button type="submit" data-testid="preview-open" aria-busy=${state.isBusy} disabled=${state.isBusy}>Open</button>
    </form>
    <${Ports} found=${found} onChoose=${open} />
    ${state.error && html`<p class="fault" role="alert" data-testid="preview-error">${state.error}</p>`}
    ${state.said && html`<p role="status" data-testid="preview-said">${state.said}</p>`}
  </section>`;
}
