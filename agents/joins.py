"""Permission to join a running sandbox: the check for every request that names something of another key.

A key joins its own sandboxes. It needs the scope `approve` for a sandbox that another key started, and for a sandbox
with a conversation of a stricter policy than the joiner's. Code in a sandbox reaches the sandbox's agent server, and
can approve there. Each join has an audit entry, which names the key. docs/access.md lists every member of a request
that the check covers.

`require_own` covers the sandbox itself: the key that started it may pause it and read all of it.
"""

from collections.abc import Mapping
from typing import Any

from core.access import REVOKED, Joiner, is_revocable_id
from core.modes import mode_named
from core.refused import RefusalKind, Refused
from core.wire import ConversationId
from settings.specs import Specs
from store import Store
from store.approvals.effects import held_levels
from store.sandboxes.sandboxes import Sandbox, SandboxId

_HOLDS_NOTHING: Mapping[str, Any] = {"kind": "NeverConfirm"}

_FOREIGN = (
    "{member}: another key started the sandbox {sandbox}. To act there you need a key with the scope approve in "
    "addition to write. Without it, act in your own sandbox."
)

_NOT_OWN = "{member}: this key did not start the sandbox {sandbox}. Use the key that did, or one with the scope admin."

_REVEALS = (
    "{member}: this needs a key with the scopes write and approve, and this one lacks approve. Ask an admin for a key"
    " with both: agentctl keys new NAME --scope write --scope approve."
)


class JoinRefused(Refused):
    """The key cannot act in this sandbox."""

    kind = RefusalKind.FORBIDDEN


def require_live(store: Store, joiner: Joiner) -> None:
    """Raise JoinRefused if the key was revoked or has expired. Cost: one round trip; none for a key of the settings."""
    if is_revocable_id(joiner.owner) and joiner.name and not store.access.keys.live([joiner.owner]):
        raise JoinRefused(f"{REVOKED}: start again with another key")


def require_join(
    store: Store,
    joiner: Joiner,
    sandbox: Sandbox,
    member: str,
    policy: Mapping[str, Any] | None = None,
    conversation_id: str = "",
) -> None:
    """Raise JoinRefused unless a key may act in a sandbox.

    member: the member of the request that names the sandbox, or leads to it. policy: of the conversation that the key
    starts there; None: it starts none. conversation_id: of that conversation.
    """
    if joiner.joins_any:
        return
    if sandbox.owner != joiner.owner:
        raise JoinRefused(_FOREIGN.format(member=member, sandbox=sandbox.id))
    if policy is not None:
        _require_as_strict(store, sandbox.id, member, policy, conversation_id)


def require_own(
    store: Store, joiner: Joiner, sandbox_id: SandboxId, member: str, *, is_admin: bool, reveals: bool = False
) -> None:
    """Raise JoinRefused unless a key started a sandbox or is an admin's. Raises SandboxNotFound.

    member: the member of the request, or the operation, that names the sandbox. reveals: also check
    `require_revealing`. Cost: one round trip; none for an admin.
    """
    if is_admin:
        return
    if store.sandboxes.get(sandbox_id).owner != joiner.owner:
        raise JoinRefused(_NOT_OWN.format(member=member, sandbox=sandbox_id))
    if reveals:
        require_revealing(joiner, member)


def require_revealing(joiner: Joiner, member: str) -> None:
    """Raise JoinRefused unless a key may read or write the files of a sandbox, because it may run any command there."""
    if not joiner.joins_any:
        raise JoinRefused(_REVEALS.format(member=member))


def join(
    store: Store,
    joiner: Joiner,
    sandbox: Sandbox,
    member: str,
    policy: Mapping[str, Any] | None,
    *,
    conversation_id: str,
    join_id: str,
    reason: str,
) -> None:
    """Let a key act in a sandbox, and audit that once per join_id. Raises JoinRefused, SandboxNotFound.

    conversation_id: of the conversation in which it acts. reason: a sentence for the audit. Other arguments: as in
    `require_join`.
    """
    require_live(store, joiner)
    require_join(store, joiner, sandbox, member, policy, conversation_id)
    if not store.destinations.join(joiner, sandbox.id, join_id, conversation_id, reason):
        raise JoinRefused(_FOREIGN.format(member=member, sandbox=sandbox.id))


def require_start(
    store: Store, specs: Specs, joiner: Joiner, request: Mapping[str, Any], conversation_id: str = ""
) -> None:
    """Raise JoinRefused unless a key may start a conversation in the requested sandbox, and below the requested parent.

    request: of a start task. A missing sandbox or parent passes, because the start fails later. Cost: at most five
    round trips; none if the request names neither.
    """
    sandbox_id, parent_id = request.get("sandbox_id"), request.get("parent_conversation_id")
    if sandbox_id:
        _require_start_in(store, specs, joiner, request, "sandbox_id", sandbox_id, conversation_id)
    if parent_id:
        [parent] = store.conversations.get_many([ConversationId(parent_id)])
        if parent is not None and (where := parent.get("sandbox_id")) and where != sandbox_id:
            asked = {} if sandbox_id else request
            _require_start_in(store, specs, joiner, asked, "parent_conversation_id", where, conversation_id)


def _require_start_in(
    store: Store,
    specs: Specs,
    joiner: Joiner,
    request: Mapping[str, Any],
    member: str,
    sandbox_id: str,
    conversation_id: str,
) -> None:
    """request: of the conversation that starts there; empty: none."""
    [sandbox] = store.sandboxes.get_many([SandboxId(sandbox_id)])
    if sandbox is not None:
        policy = policy_of_start(specs, sandbox, request) if request else None
        require_join(store, joiner, sandbox, member, policy, conversation_id)


def policy_of_start(specs: Specs, sandbox: Sandbox, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the policy that a start task asks for: of its client's own body, of its mode, or of the spec."""
    if "kept" in request:
        return request["kept"].get("confirmation_policy") or _HOLDS_NOTHING
    if mode := request.get("approval_mode"):
        return _HOLDS_NOTHING if mode_named(mode).approves_inside else mode_named(mode).policy
    spec = specs.find(sandbox.spec_id)
    return (spec and spec.conversation.get("confirmation_policy")) or _HOLDS_NOTHING


def _require_as_strict(
    store: Store, sandbox_id: SandboxId, member: str, policy: Mapping[str, Any], conversation_id: str
) -> None:
    present, _ = store.sandboxes.places.known(sandbox_id)
    others = [ConversationId(one) for one in sorted(present - {conversation_id})]
    for state in store.conversations.get_many(others):
        if state is not None and held_levels(state["confirmation_policy"]) - held_levels(policy):
            raise JoinRefused(
                f"{member}: the policy of the conversation {state['id']} in the sandbox {sandbox_id} is stricter than "
                "yours. To join it you need a key with the scope approve in addition to write, or an equally strict "
                "policy."
            )
