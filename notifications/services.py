"""Sends one message to one service of Apprise.

Limitation: Apprise resolves the host of a URL again after it was checked, follows redirects, and says only that it
failed, not why.
"""

import logging
import threading

from apprise import Apprise, AppriseAsset, NotifyBase

from notifications.addresses import AddressRefused, HostUnknown, checked
from notifications.failures import NotDelivered
from notifications.targets import Target

#: seconds of one try
TRY_SECONDS = 20.0


class Services:
    """All services. Any number of threads may use it, each for another target."""

    def __init__(self, *, private: bool, seconds: float = TRY_SECONDS) -> None:
        """private: those with a host of their own may have private addresses. seconds: of one try."""
        self._private = private
        self._seconds = seconds
        self._asset = AppriseAsset(app_id="agent-server", app_desc="agent-server", secure_logging=True)
        self._hanging: set[str] = set()  #: targets whose last try has not ended
        # Their logs have URLs, paths and tokens.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        logging.getLogger("urllib3").setLevel(logging.ERROR)

    def send(self, target: Target, title: str, text: str) -> None:
        """Try once, in a thread that is left behind where it hangs. Raises NotDelivered."""
        if target.id in self._hanging:
            raise NotDelivered("the try before it still hangs")
        delivered: list[bool] = []
        reasons: list[str] = []
        self._hanging.add(target.id)

        def notify() -> None:
            try:
                delivered.append(self._service(target).notify(body=text, title=title))
            except NotDelivered as refusal:
                reasons.append(str(refusal))
            except Exception as error:  # of a plugin; its text may have a secret
                reasons.append(f"its plugin raised {type(error).__name__}")
            finally:
                self._hanging.discard(target.id)

        thread = threading.Thread(target=notify, name=f"apprise {target.id}", daemon=True)
        thread.start()
        thread.join(self._seconds)
        if thread.is_alive():
            raise NotDelivered(f"it did not end within {self._seconds:g} seconds")
        if not any(delivered):
            raise NotDelivered(reasons[0] if reasons else "Apprise could not deliver it")

    def _service(self, target: Target) -> NotifyBase:
        """The service of a URL, its hosts checked. Raises NotDelivered."""
        service = Apprise.instantiate(target.url, asset=self._asset)
        if service is None:
            raise NotDelivered("Apprise knows no such URL")
        templates: tuple[str, ...] = service.templates
        has_host = any("{host}" in template for template in templates)
        for host in filter(None, (has_host and service.host, getattr(service, "smtp_host", None))):
            try:
                checked(host.strip("[]"), 0, private=self._private)
            except HostUnknown:
                continue  # some services have a topic there; a host that does not resolve is not reached either
            except AddressRefused:
                raise NotDelivered("its host has an address that nothing is sent to") from None
        return service
