"""Sends a message to a target, whatever its kind."""

from notifications.messages import text_of
from notifications.services import Services
from notifications.targets import Target
from notifications.webhooks import Webhooks
from wire import Micros


class Sender:
    """Any number of threads may use it, each for another target."""

    def __init__(self, webhooks: Webhooks, services: Services) -> None:
        self._webhooks = webhooks
        self._services = services

    def send(self, target: Target, message_id: str, body: str, at: Micros) -> None:
        """Try once. at: the present instant. Raises NotDelivered, TargetGone."""
        if target.kind == "webhook":
            self._webhooks.send(target, message_id, body, at)
        else:
            self._services.send(target, *text_of(body))


def open_sender(*, private: bool) -> Sender:
    """A sender for all targets of this process. private: targets may have private addresses."""
    return Sender(Webhooks(private=private), Services(private=private))
