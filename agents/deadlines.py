"""Changes of `confirmation_seconds`, after which the pending actions of a conversation expire. See docs/approvals.md.

A conversation's own value wins, then that of its sandbox's spec, then the setting. A start writes the spec's value into
the conversation, so that the script that opens an action needs no spec; null in a change does so again.
"""

from collections.abc import Mapping
from typing import Any

from access import Principal
from specs import Specs
from store import Store
from store.errors import NeedsApproval
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId


class DeadlineNeedsApproval(NeedsApproval):
    """A change of a deadline, after which actions are rejected, by one who may not reject them."""

    def __str__(self) -> str:
        return "confirmation_seconds decides when actions are rejected: that needs a key with the scope approve"


def with_deadline(
    store: Store, specs: Specs, principal: Principal, conversation_id: ConversationId, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The changes with the seconds that a null stands for; None where only the setting says some.

    An action that waits already keeps its deadline. Raises DeadlineNeedsApproval, and ConversationNotFound of a null.
    """
    if "confirmation_seconds" not in changes:
        return dict(changes)
    if not principal.may("approve"):
        raise DeadlineNeedsApproval
    seconds = changes["confirmation_seconds"]
    sandbox_id = store.conversations.sandbox_of(conversation_id) if seconds is None else None
    if sandbox_id:
        [sandbox] = store.sandboxes.get_many([SandboxId(sandbox_id)])
        spec = specs.find(sandbox.spec_id) if sandbox else None
        seconds = spec.confirmation_seconds if spec else None
    return {**changes, "confirmation_seconds": seconds}
