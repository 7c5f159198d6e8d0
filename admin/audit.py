"""Verify an export of the audit:  python -m admin audit verify FILE|URL

FILE has an entry on every line, as from `?format=jsonl`; `-` is standard input. A URL is one of the two exports, read
with the key of SESSION_API_KEY. Every hash is computed again, and every line must be the canonical JSON of its entry,
so that no byte can differ. On success it prints the last hash of each chain. Stored elsewhere and given as `--heads`,
these hashes reveal entries removed from the end, and a chain that was completely forged.

Exit status: 0 the export verifies, 1 it does not, 2 it cannot be read. Source: docs/approvals.md.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from core.approvals import canonical, digest
from core.cuts import beginning
from core.origins import is_loopback
from core.wire import InvalidJson, parse_json
from settings import variable

#: Maximum size of a line, in bytes.
_MOST_LINE = 1024 * 1024

#: Timeout of a silent server, in seconds.
_SILENCE = 60.0


#: Members that chain an entry, and the name of a chain: the id of a conversation, or a day's destinations.
_MEMBERS = {"seq": int, "previous": str, "hash": str}
_CHAIN = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|destinations-[0-9]{4}-[0-9]{2}-[0-9]{2}")


class ExportFault(Exception):
    """Raised if the export is not what was written. The message names the place and the difference."""


class ExportUnreadable(Exception):
    """Raised if there is no complete export. The message has the reason."""


class ChainEnd(NamedTuple):
    """The last entry of a chain."""

    seq: int
    hash: str


_NONE = ChainEnd(0, "")


def main(words: list[str] | None = None) -> int:
    """Run a command, and return the exit status. Standard output only has the heads."""
    given = _parser().parse_args(words)
    try:
        kept = _read_heads(given.heads) if given.heads else {}
        with _lines(given.export) as lines:
            heads, entries = verify(lines, kept, is_part=given.part)
    except ExportFault as fault:
        print(f"audit: does not verify: {fault}", file=sys.stderr)
        return 1
    except (ExportUnreadable, OSError, httpx.HTTPError) as error:
        print(f"audit: cannot be read: {error}", file=sys.stderr)
        return 2
    for chain, head in heads.items():
        print(chain, head.seq, head.hash)
    days = sum(chain.startswith("destinations-") for chain in heads)
    also = f" and {days} days of destinations" if days else ""
    print(f"audit: {entries} entries of {len(heads) - days} conversations{also} verify", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m admin audit", description="Verify an export of the audit.")
    verify_one = parser.add_subparsers(dest="command", required=True).add_parser("verify", help="verify an export")
    verify_one.add_argument("export", metavar="FILE|URL", help="JSON lines; - for the standard input")
    verify_one.add_argument("--heads", metavar="FILE", help="the output of an earlier verification")
    verify_one.add_argument(
        "--part", action="store_true", help="of a period: an audit may begin after its first entry, and end early"
    )
    return parser


def verify(
    lines: Iterable[bytes], kept: Mapping[str, ChainEnd] | None = None, *, is_part: bool = False
) -> tuple[dict[str, ChainEnd], int]:
    """Verify lines. Return the last entry of every chain, and the number of entries. Raises ExportFault.

    lines: each with its newline; ordered within a chain, chains may be mixed. kept: heads of an earlier verification.
    Memory: one head per chain.
    """
    heads: dict[str, ChainEnd] = {}
    kept, number = kept or {}, 0
    for number, line in enumerate(lines, 1):
        entry = _entry(line, number)
        chain, seq = _chain(entry), entry["seq"]
        known = kept.get(chain)
        before = heads.get(chain) or _beginning(entry, known, is_part)
        where = f"{_label(chain)}, seq {seq} (line {number})"
        hashed = digest({name: value for name, value in entry.items() if name != "hash"})
        if entry["hash"] != hashed:
            raise ExportFault(f"{where}: its hash is {entry['hash']}, and that of its content is {hashed}")
        if seq != before.seq + 1:
            raise ExportFault(
                f"{where}: seq {before.seq + 1} is due here, so entries are missing, repeated or out of order"
            )
        if entry["previous"] != before.hash:
            raise ExportFault(f"{where}: previous is {entry['previous']!r}, and the hash before is {before.hash!r}")
        if known and known.seq == seq and known.hash != entry["hash"]:
            raise ExportFault(f"{where}: its hash is {entry['hash']}, and the kept head is {known.hash}")
        heads[chain] = ChainEnd(seq, entry["hash"])
    for chain, head in kept.items():
        found = heads.get(chain, _NONE)
        if found.seq < head.seq and not is_part:
            words = f"ends at seq {found.seq}" if found.seq else "has no entry"
            raise ExportFault(f"{_label(chain)}: its audit {words}, and the kept head is seq {head.seq}")
    return heads, number


def _entry(line: bytes, number: int) -> dict[str, Any]:
    """Return the entry of a line in canonical form. Raises ExportFault."""
    if not line.endswith(b"\n"):
        raise ExportFault(f"line {number}: it has no end, or more than {_MOST_LINE} bytes")
    try:
        entry = parse_json(line)
    except InvalidJson as error:
        raise ExportFault(f"line {number}: it is not JSON: {error}") from None
    if not isinstance(entry, dict) or any(type(entry.get(name)) is not kind for name, kind in _MEMBERS.items()):
        raise ExportFault(f"line {number}: it is not an entry of an audit")
    if not _CHAIN.fullmatch(_chain(entry)):
        raise ExportFault(f"line {number}: it is not an entry of an audit")
    if canonical(entry) + b"\n" != line:
        where = f"{_label(_chain(entry))}, seq {entry['seq']} (line {number})"
        raise ExportFault(f"{where}: its bytes are not the canonical JSON of the entry")
    return entry


def _chain(entry: dict[str, Any]) -> str:
    """Return the chain of an entry: the named chain, or that of its conversation; "" if it has neither."""
    found = entry.get("chain", entry.get("conversation_id"))
    return found if isinstance(found, str) else ""


def _label(chain: str) -> str:
    return chain if chain.startswith("destinations-") else f"conversation {chain}"


def _beginning(entry: dict[str, Any], known: ChainEnd | None, is_part: bool) -> ChainEnd:
    """Return what a chain's first entry follows: nothing, or in a part the kept head or the entry's own reference."""
    if not is_part or entry["seq"] == 1:
        return _NONE
    if known and known.seq < entry["seq"]:
        return known
    return ChainEnd(entry["seq"] - 1, entry["previous"])


def _read_heads(path: str) -> dict[str, ChainEnd]:
    heads = {}
    for line in Path(path).read_text().splitlines():
        match line.split(" "):
            case [chain, seq, hash_] if seq.isdecimal():
                heads[chain] = ChainEnd(int(seq), hash_)
            case _:
                raise ExportUnreadable(f"{path} has a line that is not CHAIN SEQ HASH: {beginning(line, 100)!r}")
    return heads


@contextmanager
def _lines(export: str) -> Iterator[Iterable[bytes]]:
    """Yield the lines of a file, of standard input or of a URL, each with its newline."""
    if export == "-":
        yield iter(lambda: sys.stdin.buffer.readline(_MOST_LINE), b"")
    elif export.startswith(("http://", "https://")):
        key = variable("SESSION_API_KEY")
        headers = {"X-Session-API-Key": key} if key else {}
        url = httpx.URL(export).copy_remove_param("limit").copy_set_param("format", "jsonl")
        # With an explicit transport httpx ignores proxies of the environment.
        transport = httpx.HTTPTransport() if is_loopback(url.host) else None
        try:
            client = httpx.Client(headers=headers, timeout=_SILENCE, transport=transport)
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise ExportUnreadable(f"a proxy of the environment cannot be used: {error}") from None
        with client, client.stream("GET", url) as response:
            if response.status_code != 200:
                detail = beginning(response.read().decode(errors="replace"), 1000)
                raise ExportUnreadable(f"the server responds {response.status_code}: {detail}")
            yield _split(response.iter_bytes())
    else:
        with Path(export).open("rb") as file:
            yield iter(lambda: file.readline(_MOST_LINE), b"")


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a chunked body. A line of more than _MOST_LINE bytes lacks its end."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
        if len(rest) > _MOST_LINE:
            break
    if rest:
        yield rest
