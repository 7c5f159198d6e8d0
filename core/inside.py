"""Which actions stay inside the folder of a conversation: the approval mode `outside` lets them pass. No store.

An action stays inside if all that the server sees of it (`core/effects.py`) are reads, and writes inside the folder.
Two things that it sees as writes may run code later, so they leave the folder here: whatever names a path with `.git`
in it, as hooks and settings of Git do, and a command of Git that writes, which runs hooks.

Limitation: the limitations of `core/effects.py` hold here. An archive that is unpacked in the folder may bring hooks, a
link in the folder may lead out of it, and a file that is written may be run by somebody later.
"""

from core.approvals import SHELL_ARGUMENTS, Action, canonical
from core.effects import seen

#: effects of actions that stay inside
INSIDE = frozenset({"reads", "writes_inside"})


def stays_inside(action: Action, folder: str | None) -> bool:
    """Whether an action stays inside the folder; folder: its absolute path, None if it is not known."""
    names = seen(action.tool_name, action.arguments, folder).names
    if not names <= INSIDE or b".git" in canonical(action.arguments).lower():
        return False
    return "writes_inside" not in names or not _uses_git(action)


def _uses_git(action: Action) -> bool:
    lines = [action.line(name) for name in sorted(SHELL_ARGUMENTS)]
    return any(command.name == "git" for line in lines if line for command in line.commands)
