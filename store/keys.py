"""The data in Redis: every key, what it is and what it holds. No other module joins a key.

| key                      | type       | holds                                             | bound                |
|--------------------------|------------|---------------------------------------------------|----------------------|
| conv:{ID}                | hash       | the conversation's state; see below               | 17 fields            |
| conv:{ID}:log            | list       | the events' bytes as they came; index = seq - 1   | one per event        |
| conv:{ID}:ids            | hash       | event id → seq                                    | one per event        |
| conv:{ID}:at:KIND:SOURCE | sorted set | member seq (ten digits), score time in µs         | one per event in all |
| conv:{ID}:pairs          | set        | the KIND:SOURCE pairs that occur, escaped         | one per pair         |
| conv:{ID}:pending        | hash       | id of an open, unanswered action → where it is    | one per such action  |
| conv:{ID}:calls          | hash       | its tool call id, as JSON → its id                | one per such action  |
| conv:{ID}:text:N         | string     | case-folded text of messages, see `store/text.py` | 16 MiB or so each    |
| conv:{ID}:deleted        | string     | id of the request that deleted it                 | a minute             |

The braces are literal: they make the id the hash tag, so that all keys of a conversation lie in one slot
and every write is one script there, also in a cluster. Example: `conv:{5f1c…}:log`.

Fields of `conv:{ID}`: `id`, `incarnation` (one per creation), `seq` (of the last event), `execution_status`,
`confirmation_policy`, `title`, `tags`, `stats`, `info` (the rest of the start request; these five as JSON),
`held` (the risks that the policy holds back, joined by commas), `created_at`, `updated_at`
(UTC with Z), `last_user_message_id`, `text_chunk` (N of the chunk that grows).

A score is a double: exact to the microsecond from 1684 to 2255, to 64 µs outside.
"""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from wire import ConversationId


@dataclass(frozen=True, slots=True)
class ConversationKeys:
    """The names of one conversation's keys."""

    id: ConversationId

    @property
    def root(self) -> str:
        return f"conv:{{{self.id}}}"

    @property
    def log(self) -> str:
        return f"{self.root}:log"

    def text(self, chunk: int) -> str:
        return f"{self.root}:text:{chunk}"


#: stands for any kind or source in the scripts; no escaped name can be it
ANY = "*"


@lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """A kind or source as a part of a key: without `:`, braces, `*` or bytes outside ASCII."""
    return quote(name, safe="")


def pair(kind: str, source: str) -> str:
    """The name of the sorted set that an event stands in, behind `conv:{ID}:at:`."""
    return f"{escaped(kind)}:{escaped(source)}"
