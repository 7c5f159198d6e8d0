"""The changes of the lists in Redis: as `keys.py`, every key with its type, content and bound.

LIST is `conversations:{all}` or `{sandboxes}`: so the script that changes an entry of a list notes the change too.

| key                | type       | holds                                                        | bound        |
|--------------------|------------|--------------------------------------------------------------|--------------|
| LIST:changes       | sorted set | id, score the number of its newest change, also of its       | MOST_CHANGES |
|                    |            | deletion; a number grows, and is about the time in µs        |              |
| LIST:changes:floor | string     | the number after which no change is missing in that set      |              |
| LIST:changed       | channel    | the number of a change                                       |              |
"""

#: ids that a set of changes holds, as `store/scripts/_changes.lua` has it; beyond it the oldest change is dropped
MOST_CHANGES = 100_000


def changed_channel(root: str) -> str:
    """The channel of the changes of a list."""
    return f"{root}:changed"
