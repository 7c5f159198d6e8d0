"""The settings of notifications."""

import re
from base64 import b64decode
from dataclasses import dataclass
from urllib.parse import urlsplit

from settings import ConfigError, check_bounds, limit, setting

#: Types of the events that can be notified.
EVENT_TYPES = (
    "action.pending",
    "action.decided",
    "action.expired",
    "destination.pending",
    "destination.decided",
    "destination.expired",
    "budget.pending",
    "budget.decided",
    "budget.expired",
    "conversation.finished",
    "conversation.error",
    "sandbox.error",
)

#: Maximum number of notification targets: each has a queue, and a thread in every supervisor.
MOST_TARGETS = 32

_SECRET = re.compile(r"whsec_([A-Za-z0-9+/]{16,}={0,2})")
_TAG = re.compile(r"[a-z0-9]+(=.*)?")


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Notifications: their targets and contents."""

    notify_urls: str = setting(
        "",
        "Apprise URLs of targets, separated by spaces: `mailto://…`, `slack://…`. At most 32 with NOTIFY_WEBHOOKS.",
        secret=True,
    )
    notify_webhooks: str = setting(
        "",
        "Webhooks as targets, separated by spaces: `URL|whsec_SECRET`, with the secret in Base64 (Standard Webhooks).",
        secret=True,
    )
    notify_events: str = setting(
        "",
        "Types of events with notifications, separated by commas: `pending`, `decided` and `expired` of `action.`, "
        "`destination.` and `budget.`, `conversation.finished`, `conversation.error`, `sandbox.error`. Unset: all.",
    )
    notify_risk: str = setting(
        "LOW",
        "Minimum risk of actions with notifications. The risk is the greater of the agent's and "
        "the server's rating. An unknown rating counts as HIGH.",
        choices=("LOW", "MEDIUM", "HIGH"),
    )
    notify_tools: str = setting("", "Tools whose actions have notifications, separated by commas. Unset: all.")
    notify_tags: str = setting(
        "",
        "Tags of conversations with notifications, separated by commas: `NAME` or `NAME=VALUE`. Sandboxes "
        "always have notifications. Unset: all.",
    )
    notify_private: int = setting(
        0,
        "1: webhooks may be sent to private and loopback addresses, but never to link-local addresses.",
        least=0,
        most=1,
    )
    push_private: int = setting(
        0,
        "1: push services of devices may have private and loopback addresses, and plain HTTP. "
        "Everyone with the scope `read` can then make this server send requests to them.",
        least=0,
        most=1,
    )
    push_contact: str = setting(
        "",
        "`mailto:` or `https:` URL of the operator for push services, which Apple's requires. "
        "Unset: PUBLIC_URL, if it begins with `https:`.",
    )
    link_seconds: int = limit(86_400, "Lifetime of the link in a notification, in seconds.", least=60, most=2_592_000)

    def __post_init__(self) -> None:
        check_bounds(self)
        # No message contains a URL, because it may contain a secret.
        if not all(map(_is_webhook, self.notify_webhooks.split())):
            raise ConfigError(
                "NOTIFY_WEBHOOKS must be URL|whsec_SECRET, separated by spaces, the URL with http:// or https:// and "
                "without a user, the secret in Base64"
            )
        if not all(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://.", one) for one in self.notify_urls.split()):
            raise ConfigError("NOTIFY_URLS must be Apprise URLs, SCHEME://…, separated by spaces")
        if (number := len(self.notify_urls.split()) + len(self.notify_webhooks.split())) > MOST_TARGETS:
            raise ConfigError(f"NOTIFY_URLS and NOTIFY_WEBHOOKS must be at most {MOST_TARGETS} together, not {number}")
        if unknown := set(names(self.notify_events)) - set(EVENT_TYPES):
            raise ConfigError(f"NOTIFY_EVENTS must be of {', '.join(EVENT_TYPES)}, not {min(unknown)!r}")
        if self.push_contact and not re.fullmatch(r"(mailto:[^@\s]+@|https://)[^@\s]+", self.push_contact):
            raise ConfigError(
                "PUSH_CONTACT must be mailto:NAME@HOST or an https:// URL, by which push services reach you"
            )
        for one in names(self.notify_tags):
            if not _TAG.fullmatch(one):
                raise ConfigError(f"NOTIFY_TAGS must be NAME or NAME=VALUE, a name of a-z and 0-9, not {one!r}")

    @property
    def notifies(self) -> bool:
        """Return whether there is a notification target."""
        return bool(self.notify_urls.split() or self.notify_webhooks.split())


def names(text: str) -> list[str]:
    """Return the parts of a comma-separated setting."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_webhook(text: str) -> bool:
    url, _, secret = text.rpartition("|")
    match = _SECRET.fullmatch(secret)
    try:
        parts = urlsplit(url)
        b64decode(f"{match[1]}==" if match else "x")
        has_host = bool(parts.hostname and parts.port != 0 and "@" not in parts.netloc)
    except ValueError:
        return False
    return has_host and parts.scheme in ("http", "https")
