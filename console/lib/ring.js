// Ringing this device by web push: the browser subscribes, and the server gets where the push service takes messages.
import { call } from "./api.js";
import { RINGS } from "./announce.js";
import { ROOT } from "./root.js";
import { me } from "./session.js";
import { Store } from "./store.js";

const WORKER = `${ROOT}console/worker.js`;

/** Milliseconds after which the page renews the device. The server forgets one that is not renewed for 90 days. */
const RENEWS = 24 * 3600 * 1000;

/** @type {any} */
const trusted = /** @type {any} */ (window).trustedTypes;

/** The page may name one script at run time: the worker. */
const policy = trusted?.createPolicy("agent-server-worker", {
  createScriptURL: (url) => {
    if (url !== WORKER) throw new TypeError("This is not the worker of the console.");
    return url;
  },
});

/** Whether this device rings: {state, id}; "insecure", "home" (an iPhone's page must be on its Home Screen), "none",
 * "denied", "off", "on", or null before that is known. */
export const ring = new Store(null);

function obstacle() {
  if (!window.isSecureContext) return "insecure";
  if ("serviceWorker" in navigator && "PushManager" in window && "Notification" in window)
    return Notification.permission === "denied" ? "denied" : "";
  return /iPhone|iPad|iPod/.test(navigator.userAgent) ? "home" : "none";
}

/** The browser's subscription, null where there is none. */
async function subscription() {
  const registration = await navigator.serviceWorker.getRegistration(`${ROOT}console/`);
  return registration ? registration.pushManager.getSubscription() : null;
}

/** Look whether this device rings, and return the caller's devices: [{id, name, host, …}]. Throws ApiError. */
export async function look() {
  const state = obstacle();
  const { items } = await call("GET /api/v1/devices");
  const id = localStorage.getItem(RINGS);
  const isOn = !state && items.some((one) => one.id === id) && Boolean(await subscription());
  ring.set({ state: state || (isOn ? "on" : "off"), id: isOn ? id : null });
  return items;
}

/** Have this device ring. name: what its owner calls it. shows: "everything" or "nothing". Throws ApiError, Error. */
export async function start(name, shows) {
  if ((await Notification.requestPermission()) !== "granted")
    throw new Error("The browser did not allow notifications.");
  const { application_server_key: key } = await call("GET /api/v1/devices");
  await navigator.serviceWorker.register(policy ? policy.createScriptURL(WORKER) : WORKER);
  const { pushManager } = await navigator.serviceWorker.ready;
  const options = { userVisibleOnly: true, applicationServerKey: key };
  const made = await pushManager.subscribe(options).catch(async (fault) => {
    const earlier = await pushManager.getSubscription(); // with the key of a server that is there no more
    if (!(await earlier?.unsubscribe())) throw new Error(`The browser could not subscribe: ${fault.message}`);
    return pushManager.subscribe(options);
  });
  const device = await call("POST /api/v1/devices", { body: { ...made.toJSON(), name, shows } });
  localStorage.setItem(RINGS, device.id);
  localStorage.setItem(`${RINGS} renewed`, String(Date.now()));
}

/** Unsubscribe this device. If the page no longer has a key, the push service tells the server. */
export async function stop(id) {
  localStorage.removeItem(RINGS);
  await (await subscription())?.unsubscribe();
  if (id && me.get()) await call("DELETE /api/v1/devices/{device_id}", { path: { device_id: id } });
}

/** Renew this device once a day, under the name that its owner gave it. */
export async function renew() {
  if (Date.now() - Number(localStorage.getItem(`${RINGS} renewed`)) < RENEWS || obstacle()) return;
  const found = (await look()).find((one) => one.id === localStorage.getItem(RINGS));
  if (found) await start(found.name, found.shows);
}

/** A name for this device: what its system calls itself. */
export function deviceName() {
  const named = /** @type {any} */ (navigator).userAgentData?.platform;
  return named || /iPhone|iPad|Android|Windows|Macintosh|Linux/.exec(navigator.userAgent)?.[0] || "This device";
}
