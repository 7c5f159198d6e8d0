"""What this server has sent to agents, and expects to come back by their webhooks. See `claims.py`."""

from collections.abc import Iterable
from uuid import uuid4

import wire
from store.keys import ConversationKeys
from store.scripts import Scripts
from wire import ConversationId


class Echoes:
    """The expected echoes of all conversations."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def expect(self, conversation_id: ConversationId, claims: Iterable[str], token: str = "") -> None:
        """Note claims that the agent may make, each once, before it is sent what makes it claim them.

        token: of the request that expects them; a repeat with it adds nothing. Beyond 1,000 the oldest are forgotten.
        Of an unknown conversation nothing is kept.
        """
        token = token or uuid4().hex
        args = [wire.now(), *(f"{one} {token}" for one in claims)]
        self._scripts.expect_echoes([ConversationKeys(conversation_id).root], args)

    def forget(self, conversation_id: ConversationId, claim: str, token: str) -> None:
        """Expect a claim no longer: the agent has refused what was sent."""
        self._scripts.forget_echo([ConversationKeys(conversation_id).root], [f"{claim} {token}"])
