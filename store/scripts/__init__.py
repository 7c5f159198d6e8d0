"""Loads the Lua scripts beside this file: one verb per file, the stem is its name.

A file whose name begins with an underscore is shared code. Scripts and shared code include it with a line `-- include:
_log.lua`. The first such line is replaced by the file's text, any other by nothing. `_keys.lua` is generated: it has
the keys that `store/keys.toml` deletes with their conversation.

Every other file opens with its head: its purpose, then these lines, in this order. The last four are optional.

* `KEYS`, `ARGV`, `Returns`: its arguments and its reply, as `heads.py` reads them. `calls.py` is generated from them.
* `Cost`: `O(…)`.
* `Idempotent`: what a repeat does; `reads only` if the script does not write.
* `Log`, in each script that names keys of a log. `needed`: a guard replies with the error COLD while the log is in cold
  storage (`store/conversations/cold.py`), and with the error DAMAGED if the log has another number of events than the
  conversation counts. `guarded here`: the script checks both itself. `not guarded: ` and why: it needs no guard.
* `Kept`: `not proven: ` and why, in a script whose writes no response acknowledges, so that reads go on while writes
  are not durable. The writes of any other script are proven.
* `Brings`: `bytes`, if it stores what clients, agents and supervisors wish to keep. It is refused while Redis is nearly
  full. All other scripts free something, decide something, or write a limited number of bytes.
* `Full`: `goes on: ` and why, in a script that writes after an effect. Redis runs it even beyond its `maxmemory`,
  because refusing it would deny what has happened.

The caller here thaws the conversation after the error COLD, and calls the script again, if it is `thawing`.
"""

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from itertools import takewhile

from redis.connection import DefaultParser
from redis.exceptions import NoScriptError, ResponseError

from core.bounds import AS_REDIS, Durability
from store.errors import LogDamaged, NewerData
from store.keys import DATA_VERSION, VERSION, ApprovalKeys, ConversationKeys, ListingKeys, RuleKeys
from store.link.commands import Redis
from store.link.connection import LazyCluster
from store.scripts import heads
from store.scripts.calls import Calls

#: Value of the line Idempotent in a script that does not write.
_READING = "reads only"

#: Pattern of each line of a head, in the order of the lines.
_LINES = {
    **dict.fromkeys(("KEYS", "ARGV", "Returns"), ".+"),
    "Cost": r"O\(.+",
    "Idempotent": ".+",
    "Log": "needed|guarded here|not guarded: .+",
    "Kept": "not proven: .+",
    "Brings": "bytes",
    "Full": "goes on: .+",
}

#: First line of a script that Redis runs beyond its `maxmemory`. Source: Redis' documentation, "Lua API", script flags.
_GOES_ON = "#!lua flags=allow-oom\n"

#: WAIT covers the last write of its connection, and a repeat may write nothing. The mark is a write that leaves
#: nothing.
_MARKED = """local function act()
{}
end
local reply = act()
redis.call('SET', KEYS[1] .. ':mark', '')
redis.call('DEL', KEYS[1] .. ':mark')
return reply
"""

#: A script builds the names of its keys from its root, so Redis cannot check them first. While their slot moves, some
#: are on one node and some on another: the script would miss some, or end after half of its writes. Keys that exist on
#: no node are refused by both nodes while their slot moves, so the script ends before it does anything. Every root has
#: a hash tag, so that both keys lie in its slot.
_IN_A_CLUSTER = """do
  local found = redis.pcall('EXISTS', KEYS[1] .. ':no', KEYS[1] .. ':nor')
  if type(found) == 'table' then return redis.error_reply('TRYAGAIN the slot moves to another node: ' .. found.err) end
end
"""

#: If one server has all keys, the script that changes a conversation also updates what depends on it.
_FOLLOWED = """local function act()
{}
end
{}"""

#: The scripts that update what depends on a conversation.
_FOLLOWING = ("note_conversation", "read_unindexed", "note_approvals")

_GUARD = f"""do
{files(__package__).joinpath("_damage.lua").read_text()}
  local cold, counted = unpack(redis.call('HMGET', KEYS[1], 'cold', 'seq'))
  if cold then return redis.error_reply('COLD ' .. cold) end
  local damage = damage_of(KEYS[1], counted)
  if damage then return damage end
end
"""

#: A newer release may have changed the data, and this one would corrupt them. The check is part of the write, so that
#: nothing can come between. In a cluster the key is on another node, see `link/health.py`.
_OF_THIS_VERSION = """do
  local found = redis.call('GET', '%s')
  if found and (tonumber(found) or math.huge) > %d then return redis.error_reply('NEWERDATA ' .. found) end
end
"""

_LINE = re.compile(r"-- ([A-Z]\w+)  (\S.*)")
#: Root of a script's keys, for the script and its includes.
_ROOT = "local root = KEYS[1]\n"

_HEAD = re.compile(r"(?:--.*\n)*")
_INCLUDE = re.compile(r"^-- include: (_\w+\.lua)\n", re.MULTILINE)


#: Maximum number of thaws per call. A conversation that becomes cold again each time would be a fault of the sweep.
_MOST_THAWS = 3


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """A callable script. text: with its includes. head: the lines of its head, by name."""

    text: str
    head: Mapping[str, str]
    prose: list[str]  #: lines of its head with its purpose
    contract: heads.Contract  #: arguments and replies

    @property
    def writes(self) -> bool:
        return self.head["Idempotent"] != _READING

    @property
    def needs_log(self) -> bool:
        """Return whether it needs the log of its conversation in Redis."""
        return self.head.get("Log") == "needed"

    @property
    def is_acknowledged(self) -> bool:
        """Return whether a response acknowledges its writes."""
        return self.writes and "Kept" not in self.head

    @property
    def brings_bytes(self) -> bool:
        """Return whether it is refused while Redis is nearly full."""
        return "Brings" in self.head

    @property
    def goes_on(self) -> bool:
        """Return whether Redis runs it beyond its `maxmemory`."""
        return "Full" in self.head

    @property
    def changes_conversation(self) -> bool:
        """Return whether it replies with the new state of a conversation."""
        return any(one.type == "log_state" for reply in self.contract.replies for one in reply.fields)

    def is_proven(self, durability: Durability) -> bool:
        """Return whether its writes must be proven before its reply is used."""
        return durability.is_proven and self.is_acknowledged

    def as_sent(self, durability: Durability, *, in_cluster: bool) -> str:
        sent = _FOLLOWED.format(self.text, _following()) if self.changes_conversation else self.text
        if durability.replicas and self.is_proven(durability):
            sent = _MARKED.format(sent)
        if self.needs_log:
            sent = _GUARD + sent
        if self.writes and not in_cluster:
            sent = _OF_THIS_VERSION % (DATA_VERSION, VERSION) + sent
        sent = _IN_A_CLUSTER + sent if in_cluster else sent
        return _GOES_ON + sent if self.goes_on else sent


@cache
def _texts() -> dict[str, str]:
    """Return the text of every file by its name, and the shared code that is generated from `store/keys.toml`."""
    found = {entry.name: entry.read_text() for entry in files(__package__).iterdir() if entry.name.endswith(".lua")}
    ending = ", ".join(map(repr, ConversationKeys.ending()))
    return {**found, "_keys.lua": f"local KEYS_THAT_END = {{{ending}}}\n"}


@cache
def sources() -> Mapping[str, ScriptSource]:
    """Return every callable script by name, read once. Raises ValueError for an invalid head."""
    texts = _texts()
    shapes = heads.shapes_of(texts)
    found = {}
    for name, text in sorted(texts.items()):
        if not name.startswith("_"):
            head = read_head(name, text)
            contract = heads.contract(name, head, shapes)
            found[name.removesuffix(".lua")] = ScriptSource(_whole(text, texts, contract), head, _prose(text), contract)
    return found


def read_head(name: str, text: str) -> dict[str, str]:
    """Read the lines of a script's head, by name. Raises ValueError for an invalid head."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if not line.startswith("--") or _INCLUDE.match(line + "\n"):
            break
        if opens := _LINE.fullmatch(line):
            found.append((opens[1], opens[2]))
        elif found and line.startswith("--   "):
            goes_on = line.removeprefix("--").strip()
            found[-1] = (found[-1][0], f"{found[-1][1]}{'  ' if heads.begins(goes_on) else ' '}{goes_on}")
        elif found:
            raise ValueError(f"{name}: its head has the line {line!r}, which is none of {', '.join(_LINES)}")
    head = dict(found)
    forbidden = {"Kept", "Brings", "Full"} if head.get("Idempotent") == _READING else set[str]()
    absent = forbidden | ({"Log", "Kept", "Brings", "Full"} - head.keys())
    lines, wanted = [line for line, _ in found], [line for line in _LINES if line not in absent]
    if lines != wanted:
        raise ValueError(f"{name}: its head has the lines {', '.join(lines)}, and should have {', '.join(wanted)}")
    for line, says in head.items():
        if not re.fullmatch(_LINES[line], says):
            raise ValueError(f"{name}: its line {line} says {says!r}, and may say {_LINES[line]}")
    return head


def _whole(text: str, texts: dict[str, str], contract: heads.Contract) -> str:
    """Return a script with its includes, after the root of its keys, and with its arguments as locals of its body."""
    ends = [match.end() for match in _INCLUDE.finditer(text)] or [_HEAD.match(text).end()]  # type: ignore[union-attr]
    return _ROOT + _included(text[: ends[-1]], texts, set()) + heads.preamble(contract) + text[ends[-1] :]


@cache
def _following() -> str:
    """Return the code that updates what depends on a conversation: each script as a function, and their calls."""
    scripts = (f"local function {name}(KEYS, ARGV)\n{sources()[name].text}\nend\n" for name in _FOLLOWING)
    return "".join(scripts) + _included(_texts()["_follow.lua"], _texts(), set())


def _prose(text: str) -> list[str]:
    return list(takewhile(lambda line: line.startswith("--") and not _LINE.fullmatch(line), text.splitlines()))


def _included(text: str, texts: dict[str, str], seen: set[str]) -> str:
    """Replace the includes of a text, and the includes of these, each once. seen: names of included files; it grows."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return _included(texts[name], texts, seen)

    return _INCLUDE.sub(put, text)


class IsCold(ResponseError):
    """The error COLD: a script needs a log that is in cold storage."""


class IsNewer(ResponseError):
    """The error NEWERDATA: a newer release has changed the data, which must not be written."""


class IsDamaged(ResponseError):
    """The error DAMAGED: Redis has another number of events than a conversation counts.

    The message has both numbers.
    """


DefaultParser.EXCEPTION_CLASSES.update(COLD=IsCold, NEWERDATA=IsNewer, DAMAGED=IsDamaged)


class _LoadedScript:
    """A script that is called by its hash, 4 µs faster than with redis-py's own class."""

    def __init__(
        self,
        redis: Redis,
        text: str,
        options: Mapping[str, object],
        require_room: Callable[[], None] | None,
        follows: bool,
    ) -> None:
        """options: of each call, for its connection.

        require_room: raises StoreFull; None for a script that goes on in a full Redis. follows: also pass the keys for
        updates of what depends on a conversation.
        """
        self._redis = redis
        self._text = text.encode()
        self._hash = sha1(self._text, usedforsecurity=False).hexdigest()
        self._options = options
        self._require_room = require_room
        self._follows = follows
        self._thaw: Callable[[str], None] | None = None

    def __call__(self, keys: list[str], args: list[object]) -> object:
        if self._require_room is not None:
            self._require_room()
        if self._follows:
            keys = [*keys, ListingKeys.root, ApprovalKeys.root, RuleKeys.root]
        command = ("EVALSHA", self._hash, len(keys), *keys, *args)
        try:
            for _ in range(_MOST_THAWS):
                try:
                    return self._send(command)
                except IsCold:
                    if self._thaw is None:
                        raise
                    self._thaw(keys[0])
            return self._send(command)
        except IsNewer as error:
            raise NewerData(str(error), VERSION) from None
        except IsDamaged as error:
            raise LogDamaged(keys[0].partition("{")[2].partition("}")[0], *map(int, str(error).split())) from None

    def thawing(self, thaw: Callable[[str], None]) -> "_LoadedScript":
        """Return a copy of this script that calls `thaw` and retries when it needs a cold log."""
        script = copy(self)
        script._thaw = thaw
        return script

    def _send(self, command: tuple[object, ...]) -> object:
        try:
            return self._redis.execute_command(*command, **self._options)
        except NoScriptError:
            self._redis.script_load(self._text)
            return self._redis.execute_command(*command, **self._options)


class Scripts(Calls):
    """Every script as a method, sent once per server and called by its hash."""

    def __init__(
        self, redis: Redis, durability: Durability = AS_REDIS, require_room: Callable[[], None] | None = None
    ) -> None:
        """durability: of the scripts that write. The client's connections send the proofs.

        require_room: called before each script that stores new data, raises StoreFull.
        """
        in_cluster = isinstance(redis, LazyCluster)
        for name, source in sources().items():
            sent = source.as_sent(durability, in_cluster=in_cluster)
            options = {"proven": True} if source.is_proven(durability) else {}
            room = require_room if source.brings_bytes else None
            follows = source.changes_conversation and not in_cluster
            setattr(self, f"_{name}", _LoadedScript(redis, sent, options, room, follows))

    def thawing(self, thaw: Callable[[str], None]) -> "Scripts":
        """Return copies of the scripts that thaw a log when they need it.

        thaw: called with the root of the conversation.
        """
        scripts = copy(self)
        for name, script in vars(self).items():
            setattr(scripts, name, script.thawing(thaw))
        return scripts
