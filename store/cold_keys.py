"""The data of cold conversations in Redis: as `keys.py`, every key with its type, content and bound.

| key            | type       | holds                                                  | bound                        |
|----------------|------------|--------------------------------------------------------|------------------------------|
| {cold}:objects | sorted set | names of all objects, score when each is looked at, µs | one per cold conversation,   |
|                |            |                                                        | and per thaw of an hour      |
| {cold}:turn:T  | string     | 1 while a supervisor has done the task T a moment ago   | 2, each ends by itself       |

Fields of `conv:{ID}`: `cold` (name of the object that has its log; absent: Redis has it) and `warm_until` (µs before
which it is not frozen again). `scripts/_freeze.lua` lists the keys that are moved; `scripts/texts.py` guards every
script that names one. Of a cold conversation `text:N` stays, as a Zstandard frame: see `text.py`.
"""


class ColdKeys:
    """The name that the register of objects is below."""

    root = "{cold}"
    objects = f"{root}:objects"

    @staticmethod
    def turn(task: str) -> str:
        """The claim of a task that one supervisor of all does at a time."""
        return f"{ColdKeys.root}:turn:{task}"
