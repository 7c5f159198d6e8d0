// Rings this device: shows what the server pushes, and sends the decision of a button. It keeps no key and no page: a
// notification has a one-time token of its own, which decides one action while the device and its owner may.
const worker = /** @type {any} */ (self);

const BUTTONS = {
  approve: { action: "approve", title: "Approve" },
  reject: { action: "reject", title: "Reject" },
  open: { action: "open", title: "Open" },
};

/** An address below the path of the console, which a proxy may serve anywhere. */
const address = (path) => new URL(path, worker.registration.scope).href;

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener("push", (event) => event.waitUntil(show(event.data.json())));
worker.addEventListener("notificationclick", (event) => {
  const { action, notification } = event;
  notification.close();
  const isDecision = action === "approve" || action === "reject";
  event.waitUntil(isDecision ? decide(action, notification.data) : openPlace(notification.data));
});

/** Show a ring. A later ring with the same tag replaces it. A browser demands a notification for each push. */
function show(ring) {
  const buttons = ring.decides ? [BUTTONS.approve, BUTTONS.reject] : ring.quiet ? [] : [BUTTONS.open];
  return worker.registration.showNotification(ring.title, {
    body: ring.text,
    tag: ring.tag,
    data: ring,
    actions: buttons,
    silent: ring.quiet,
    renotify: !ring.quiet,
    requireInteraction: !ring.quiet,
  });
}

/** Send a decision with the token of the ring, and show the result: another person may have been faster. */
async function decide(decision, ring) {
  let response, told;
  try {
    response = await fetch(address(`../approvals/${ring.token}`), {
      method: "POST",
      headers: { Accept: "application/json" },
      body: new URLSearchParams({ decision }),
    });
    told = await response.json();
  } catch {
    return show({ ...ring, title: "The server does not respond", quiet: false });
  }
  const { token, decides, ...rest } = ring;
  const text = response.ok ? ring.text : told.detail;
  const isOver = response.status < 500 && response.status !== 429;
  return show({ ...(isOver ? rest : ring), title: told.title ?? "Nothing was decided", text, quiet: isOver });
}

/** Show what waits: in the console if one is open, else on the page of the token, which needs no key. */
async function openPlace(ring) {
  const [page] = await worker.clients.matchAll({ type: "window" });
  if (page) {
    await page.focus().catch(() => {}); // a browser may allow it right after a press alone
    return page.navigate(address(ring.place));
  }
  return worker.clients.openWindow(address(ring.token ? `../approvals/${ring.token}` : ring.place));
}
