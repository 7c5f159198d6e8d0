"""One-time links: a URL that shows one pending action and asks for its decision. Source: docs/approvals.md.

A link's token says what it is about, and is signed with a key derived from SECRET_KEY: whoever has the token may decide
this action, as it was when the link was made, once, until the link expires.
"""

from hashlib import sha256
from typing import NamedTuple

from itsdangerous import BadSignature, URLSafeSerializer

from wire import ConversationId, Micros, now

#: the path that a link's token follows
PATH = "/approvals"

#: most characters of a target's name in a link
_MOST_TARGET = 100

#: what the key of the signatures is derived for; another purpose has another key
_PURPOSE = "agent-server approval link"


class Link(NamedTuple):
    """What a link is about."""

    conversation_id: ConversationId
    action_id: str
    digest: str  #: of the action as it was notified of
    target: str  #: name of the target that was notified: the audit has it as the actor's
    ends: Micros
    identity: str  #: hex SHA-256 of the token without its signature; nothing stores the token


class LinkForged(Exception):
    """A token was not made by this server, or not all of it came."""

    def __init__(self) -> None:
        super().__init__("This link is not one of this server, or a part of it is missing.")


class Links:
    """Makes and reads links. All secret keys verify, the first signs."""

    def __init__(self, secret_keys: tuple[str, ...], *, public_url: str, seconds: int) -> None:
        """public_url: empty where no links are made. seconds: for which a link can be used."""
        self._public_url, self._seconds = public_url.rstrip("/"), seconds
        signing = {"key_derivation": "hmac", "digest_method": sha256}
        keys = list(reversed(secret_keys))  # itsdangerous signs with the last
        self._serializer = URLSafeSerializer(keys, salt=_PURPOSE, signer_kwargs=signing) if keys else None

    def make(
        self,
        conversation_id: ConversationId,
        action_id: str,
        digest: str,
        target: str,
        *,
        deadline: Micros | None = None,
    ) -> str | None:
        """The URL of a link to a pending action; None where the settings name no PUBLIC_URL or no SECRET_KEY.

        It expires after the seconds of the settings, or at the action's deadline if that is earlier.
        """
        if not self._public_url or self._serializer is None:
            return None
        ends = now() + self._seconds * 1_000_000
        words = [conversation_id, action_id, digest, target[:_MOST_TARGET], min(ends, deadline or ends)]
        return f"{self._public_url}{PATH}/{self._serializer.dumps(words)}"

    def read(self, token: str) -> Link:
        """What a token's link is about, expired or not. Raises LinkForged."""
        if self._serializer is None:
            raise LinkForged
        try:
            conversation_id, action_id, digest, target, ends = self._serializer.loads(token)
        except (BadSignature, UnicodeEncodeError):  # a lone surrogate has no bytes
            raise LinkForged from None
        # Of what is signed: the last letter of a signature has bits that mean nothing, and would make other tokens.
        identity = sha256(token.rpartition(".")[0].encode()).hexdigest()
        return Link(ConversationId(conversation_id), action_id, digest, target, Micros(ends), identity)
