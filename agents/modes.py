"""Approval modes of conversations: who may choose a mode, where it is possible, and its change while an agent runs.

The mode `nothing` relies on the sandbox, so it is refused without a sandbox or without isolation. The policy of the
wire (`POST …/confirmation_policy`) is not refused, because its clients know the consequences. A start needs the scope
`approve` for a mode that is less strict than the spec's own policy, as a later change does.
"""

from collections.abc import Mapping
from typing import Any

from agents.commands import Commands
from core.modes import Mode, mode_named
from core.refused import RefusalKind, Refused
from core.wire import UNASKED, ConversationId, acts_unasked
from settings.specs import Spec, Specs
from store.approvals.effects import held_levels
from store.sandboxes.sandboxes import Sandbox, SandboxId

_HOLDS_NOTHING: Mapping[str, Any] = {"kind": "NeverConfirm"}

_DETACHED = (
    "“Ask nothing” is for conversations in a sandbox: this conversation has none, so nothing would confine its agent. "
    "Choose another mode."
)
_OPEN = (
    "“Ask nothing” is for sandboxes that confine their agent: the spec {spec} does not isolate its sandboxes. "
    'Choose another mode, or a spec with isolation = "required".'
)
_NOT_ISOLATED = (
    "“Ask nothing” is for sandboxes that confine their agent: this host cannot isolate the sandbox {sandbox}. Choose"
    " another mode."
)


class ModeRefused(Refused):
    """The approval mode cannot be enforced here."""

    kind = RefusalKind.CONFLICT


class ModeNotAllowed(Refused):
    """The key cannot choose this approval mode."""

    kind = RefusalKind.FORBIDDEN


def set_mode(commands: Commands, specs: Specs, conversation_id: ConversationId, name: str) -> None:
    """Set a mode from the next action on. Raises ModeRefused, ConversationNotFound, and the errors of `set_policy`."""
    mode = mode_named(name)
    if mode.needs_sandbox:
        sandbox_id = commands.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            raise ModeRefused(_DETACHED)
        [sandbox] = commands.store.sandboxes.get_many([SandboxId(sandbox_id)])
        if fault := containment_fault(specs.find(sandbox.spec_id) if sandbox else None, sandbox):
            raise ModeRefused(fault)
    commands.set_policy(conversation_id, dict(mode.policy), approves_inside=mode.approves_inside)
    if mode.approves_inside:
        commands.store.approvals.rule_decisions.refresh(conversation_id)


def containment_fault(spec: Spec | None, sandbox: Sandbox | None) -> str:
    """Return why a sandbox does not contain its agent, in a sentence; empty if it does.

    sandbox: None before its start, when its host decides.
    """
    if spec is not None and spec.runtime != "process":
        return ""
    if spec is not None and spec.isolation == "none":
        return _OPEN.format(spec=spec.id)
    if sandbox is None:
        return ""
    kind = ((sandbox.handle or {}).get("isolation") or {}).get("kind")
    return _NOT_ISOLATED.format(sandbox=sandbox.id) if kind in (None, "none") else ""


def start_fault(spec: Spec, sandbox: Sandbox | None, mode: Mode) -> str:
    """Return why a mode is impossible in a conversation of a spec, in a sentence; empty if it is possible.

    The supervisor checks again once the sandbox runs.
    """
    if mode.needs_sandbox:
        return containment_fault(spec, sandbox if sandbox and sandbox.handle is not None else None)
    return f"{UNASKED}. Choose “Ask nothing”" if acts_unasked(spec.conversation.get("agent")) else ""


def require_right(spec: Spec, mode: Mode, may_approve: bool) -> None:
    """Raise ModeNotAllowed for a mode that is less strict than the spec's policy, unless the key may approve."""
    of_spec = held_levels(spec.conversation.get("confirmation_policy") or _HOLDS_NOTHING)
    if not may_approve and of_spec - (set() if mode.approves_inside else held_levels(mode.policy)):
        raise ModeNotAllowed(
            f"“{mode.words}” is less strict than the policy of the spec {spec.id}. Use a key with the scope approve, "
            "or start without a mode."
        )
