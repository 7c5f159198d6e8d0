// "Ring this device": the switch, what a notification shows, a test, and the devices that ring for this key.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { deviceName, look, ring, start, stop } from "../lib/ring.js";
import { useStore } from "../lib/store.js";
import { attempt, Failure, tell } from "./notices.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Why a device cannot ring, and what helps. */
const OBSTACLES = {
  insecure: "A browser rings only for pages over https, or of this machine. Open the console by its https address.",
  home: "On an iPhone or iPad: press Share, then “Add to Home Screen”, and open the console from there.",
  none: "This browser has no web push.",
  denied: "The browser blocks notifications from this page. Allow them in its settings of this site.",
};

function Switch({ state, id, onChange }) {
  const [name, setName] = useState(deviceName),
    [shows, setShows] = useState("everything"),
    [isBusy, setBusy] = useState(false);
  if (OBSTACLES[state]) return html`<p class="muted" data-testid="ring-obstacle">${OBSTACLES[state]}</p>`;
  const act = (doing) => async () => {
    setBusy(true);
    await attempt(doing);
    setBusy(false);
    onChange();
  };
  if (state === "on")
    return html`<p class="ring-switch">
      <span class="state low">This device rings</span>
      <button type="button" class="secondary" data-testid="ring-test" disabled=${isBusy}
        onClick=${act(() => test(id))}>Send a test</button>
      <button type="button" class="secondary" data-testid="ring-off" disabled=${isBusy}
        onClick=${act(() => stop(id))}>Ring no more</button>
    </p>`;
  return html`<form class="ring-switch" onSubmit=${(event) => {
    event.preventDefault();
    act(() => start(name.trim() || deviceName(), shows))();
  }}>
    <label>Name <input value=${name} maxlength="100" data-testid="ring-name"
      onInput=${(event) => setName(event.target.value)} /></label>
    <label>Shows <select value=${shows} data-testid="ring-shows" onChange=${(event) => setShows(event.target.value)}>
      <option value="everything">the command, with Approve and Reject</option>
      <option value="nothing">only that something waits</option>
    </select></label>
    <button type="submit" data-testid="ring-on" disabled=${isBusy}>Ring this device</button>
  </form>`;
}

async function test(id) {
  const outcome = await call("POST /api/v1/devices/{device_id}/test", { path: { device_id: id } });
  if (!outcome.delivered) throw new Error(`The test failed: ${outcome.detail}`);
  tell("The push service took the test: this device rings now.");
}

function Device({ device, onEnd }) {
  return html`<li class="row" data-testid=${`device-${device.id}`}>
    <span class="what"><strong><${Text} text=${device.name} /></strong> <span class="muted"><${Text}
      text=${device.host} /></span></span>
    <span class="muted">renewed <${Time} at=${device.renewed_at} /></span>
    <span class="actions"><button type="button" class="secondary" onClick=${onEnd}>End</button></span>
    ${
      device.last_failure &&
      html`<p class="happened high">Failed <${Time} at=${device.last_failure_at} />: <${Text}
      prose text=${device.last_failure} /></p>`
    }
  </li>`;
}

export function Ring() {
  const known = useStore(ring);
  const [devices, setDevices] = useState([]),
    [error, setError] = useState(null);
  const again = () =>
    look().then(
      (found) => (setDevices(found), setError(null)),
      (fault) => setError(fault),
    );
  useEffect(() => void again(), []);
  const end = (id) =>
    attempt(() => call("DELETE /api/v1/devices/{device_id}", { path: { device_id: id } })).then(again);
  const others = devices.filter((one) => one.id !== known?.id);
  return html`<section class="card whole" data-testid="ring">
    <h2>Ring this device</h2>
    <p class="muted">A phone rings when something waits for you, also while no page is open. Its push service gets
      ciphertext alone.</p>
    ${error && html`<${Failure} error=${error} again=${again} />`}
    ${known && !error && html`<${Switch} state=${known.state} id=${known.id} onChange=${again} />`}
    ${others.length > 0 && html`<h3>Your other devices</h3>`}
    <ul class="rows">${others.map(
      (one) => html`<${Device} key=${one.id} device=${one} onEnd=${() => end(one.id)} />`,
    )}</ul>
  </section>`;
}
