"""Actions that show less than will run: their agent shows words in place of a call's arguments.

A person may decide such an action, and no rule: a rule would compare what is shown, not what runs.
"""

from typing import Any

#: the member of an action's `data` that marks it, with a sentence for people. ACP and MCP reserve names with a `_`
INCOMPLETE = "_incomplete"


def is_complete(arguments: Any) -> bool:
    """Return whether arguments, as people are shown them, are all that the tool gets."""
    data = arguments.get("data") if isinstance(arguments, dict) else None
    return not (isinstance(data, dict) and INCOMPLETE in data)
