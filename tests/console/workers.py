"""The service worker of the console in a Chromium, by the DevTools protocol: what is pushed, shown and pressed."""

import json
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect

from tests.console import Browser
from tests.servers import wait_until

#: presses a button of the first notification, as a person would: headless Chromium shows none that could be pressed
_PRESS = """(async () => {
  const [notification] = await registration.getNotifications();
  const event = new NotificationEvent("notificationclick", { notification, action: ACTION });
  let done;
  event.waitUntil = (promise) => (done = promise);
  dispatchEvent(event);
  await done;
})()"""

#: the notifications that are shown
_SHOWN = """(async () => (await registration.getNotifications()).map((one) => ({
  title: one.title, body: one.body, tag: one.tag, silent: one.silent, buttons: one.actions.map(({ title }) => title),
})))()"""


class ConsoleSession:
    """A connection to a target of Chromium."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number = socket, 0

    def send(self, method: str, **members: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": members}))
        while (told := json.loads(self._socket.recv(20))).get("id") != self._number:
            pass
        assert "error" not in told, told
        return told["result"]

    def event(self, method: str) -> Any:
        while (told := json.loads(self._socket.recv(20))).get("method") != method:
            pass
        return told["params"]

    def evaluate(self, source: str) -> Any:
        found = self.send("Runtime.evaluate", expression=source, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")


class ConsoleWorker:
    """The worker of the page that a browser shows."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def push(self, ring: dict[str, Any]) -> None:
        """Deliver a ring as the push service would."""
        with self._target("page") as page:
            page.send("ServiceWorker.enable")
            found: list[dict[str, Any]] = []
            while not found:
                found = page.event("ServiceWorker.workerRegistrationUpdated")["registrations"]
            page.send(
                "ServiceWorker.deliverPushMessage",
                origin=self._browser.base_url,
                registrationId=found[0]["registrationId"],
                data=json.dumps(ring),
            )

    def shown(self) -> list[dict[str, Any]]:
        """The notifications that are shown."""
        with self._target("service_worker") as worker:
            found: list[dict[str, Any]] = worker.evaluate(_SHOWN)
            return found

    def press(self, action: str) -> None:
        """Press a button of the notification, "" the notification itself."""
        with self._target("service_worker") as worker:
            worker.evaluate(_PRESS.replace("ACTION", json.dumps(action)))

    @contextmanager
    def _target(self, kind: str) -> Any:
        address = self._browser.driver.capabilities["goog:chromeOptions"]["debuggerAddress"]

        def find() -> list[str]:
            with urlopen(f"http://{address}/json") as response:
                targets = json.load(response)
            return [
                one["webSocketDebuggerUrl"]
                for one in targets
                if one["type"] == kind and one["url"].startswith(self._browser.base_url)
            ]

        wait_until(find, f"a target of the kind {kind}")
        with connect(find()[0], max_size=None) as socket:
            yield ConsoleSession(socket)
