"""The data of warm sandboxes in Redis: as `keys.py`, every key with its type, content and bound.

| key                       | type       | holds                                                    | bound            |
|---------------------------|------------|----------------------------------------------------------|------------------|
| {sandboxes}:pools         | set        | ids of the specs that keep warm sandboxes                | one per spec     |
| {sandboxes}:pool:SPEC     | hash       | `version` of the spec, `most` that are kept, `failures`, | 4 fields         |
|                           |            | and `after` (µs) which one may be started again          |                  |
| {sandboxes}:warm:SPEC     | sorted set | ids of the warm sandboxes of a spec, score when made, µs | `most`           |
| {sandboxes}:claimed:START | string     | the warm sandbox that a start task has claimed           | an hour          |

A sandbox is warm as long as its field `warm` has the version of its spec; it is bound when that is empty.
"""


def claimed_key(start_id: str) -> str:
    """The key of the warm sandbox that a start task has claimed."""
    return f"{{sandboxes}}:claimed:{start_id}"
