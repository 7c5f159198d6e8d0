"""The data in Redis: every key, what it is and what it holds. No other module joins a key.

| key                      | type       | holds                                             | bound                |
|--------------------------|------------|---------------------------------------------------|----------------------|
| conv:{ID}                | hash       | the conversation's state; see below               | 22 fields            |
| conv:{ID}:log            | list       | the events' bytes as they came; index = seq - 1   | one per event        |
| conv:{ID}:ids            | hash       | event id → seq                                    | one per event        |
| conv:{ID}:at:KIND:SOURCE | sorted set | member seq (ten digits), score time in µs         | one per event in all |
| conv:{ID}:pairs          | set        | the KIND:SOURCE pairs that occur, escaped         | one per pair         |
| conv:{ID}:pending        | hash       | id of an open, unanswered action → where it is    | one per such action  |
| conv:{ID}:calls          | hash       | its tool call id, as JSON → its id in an array    | one per such action  |
| conv:{ID}:text:N         | string     | case-folded text of messages, see `store/text.py` | 16 MiB or so each    |
| conv:{ID}:secrets        | hash       | name → secret, sealed                             | one per secret       |
| conv:{ID}:deleted        | string     | id of the request that deleted it, its revision   | a minute             |
| conv:{ID}:signal         | channel    | after every change the seq of the last event;     |                      |
|                          |            | `state` when no event tells of it; an event that  |                      |
|                          |            | is not kept; `0` when all is deleted              |                      |
| follower:PROCESS         | channel    | what a process says to its own subscriber         |                      |
| conv:{ID}:fork:FORK…     | as above   | a copy while it is made, then renamed             | an hour              |
| conversations:{all}:…    |            | the listing, see `store/listing.py`:              |                      |
|   …:revisions            | hash       | id → revision and status                          | one per conversation |
|   …:created, …:updated   | sorted set | member id, score time in µs                       | one per conversation |
|   …:created:STATUS, …    | sorted set | the same of one status                            | one per conversation |

The braces are literal, also around `all`: they make the id the hash tag, so that all keys of a
conversation lie in one slot and every write is one script there, also in a cluster. Example: `conv:{5f1c…}:log`.

Fields of `conv:{ID}`: `id`, `incarnation` (one per creation), `seq` (of the last event), `execution_status`,
`confirmation_policy`, `title`, `tags`, `stats`, `security_analyzer`, `info` (the rest of the start request; these
six as JSON), `held` (the risks that the policy holds back, joined by commas), `created_at`, `updated_at`
(UTC with Z), `revision` (grows with every change, also from one life of an id to the next), `last_user_message_id`,
`snapshot_id` (of the last full state that an agent told), `text_chunk` (N of the chunk that grows).

A score is a double: exact to the microsecond from 1684 to 2255, to 64 µs outside.
"""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from wire import ConversationId


@dataclass(frozen=True, slots=True)
class ConversationKeys:
    """The names of one conversation's keys; with a fork's id, of a copy that is made for it."""

    id: ConversationId
    fork: str = ""

    @property
    def root(self) -> str:
        return f"conv:{{{self.id}}}" + (f":fork:{self.fork}" if self.fork else "")

    @property
    def log(self) -> str:
        return f"{self.root}:log"

    @property
    def ids(self) -> str:
        return f"{self.root}:ids"

    @property
    def pairs(self) -> str:
        return f"{self.root}:pairs"

    def at(self, pair: str) -> str:
        return f"{self.root}:at:{pair}"

    @property
    def secrets(self) -> str:
        return f"{self.root}:secrets"

    @property
    def signal(self) -> str:
        return f"{self.root}:signal"

    def text(self, chunk: int) -> str:
        return f"{self.root}:text:{chunk}"


#: root of the listing of all conversations
LISTING = "conversations:{all}"


def followers_channel(process: str) -> str:
    """Where a process reaches its own subscriber."""
    return f"follower:{process}"


#: stands for any kind or source in the scripts; no escaped name can be it
ANY = "*"


@lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """A kind or source as a part of a key: without `:`, braces, `*` or bytes outside ASCII."""
    return quote(name, safe="")


def pair(kind: str, source: str) -> str:
    """The name of the sorted set that an event stands in, behind `conv:{ID}:at:`."""
    return f"{escaped(kind)}:{escaped(source)}"
