"""The output of a command. A long output is shown by its head and its tail, and a file keeps the whole.

The files are in OUTPUTS of the working folder, where clients download them. Above MOST_FILES the oldest is deleted.
"""

import codecs
import re
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from core.cuts import head_and_tail
from core.masking import NOTHING, Mask, Masked

#: Maximum bytes of an output in an observation, and of a whole output in a file, including its last line. A client
#: reads a file of that size in one response.
MOST_OUTPUT, MOST_WHOLE = 100_000, 8 << 20
OUTPUTS, MOST_FILES = ".outputs", 16  #: folder of the files, and maximum number of files in it
#: Bytes of a head and of a tail; distance in which a cut moves to the end of a line; reserve for a file's last line.
_END, _LINE, _LAST = 49_000, 4096, 200
MOST_TAIL = 4000  #: maximum bytes of the output's end that is streamed during a command
_MARK = re.compile(r"^… ([\d,]+) (of [\d,]+ bytes are not shown here\. .*) …$", re.MULTILINE)
_CONTINUED = bytes(range(0x80, 0xC0))  #: continuation bytes of UTF-8


class CommandOutput:
    """The output of one command. `close` closes its file."""

    def __init__(self, folder: Path, mask: Mask = NOTHING) -> None:
        self._folder, self._begin, self._end = folder / OUTPUTS, bytearray(), bytearray()
        self.size = 0  #: bytes so far
        self._file: IO[bytes] | None = None
        self._written, self._fault = 0, ""
        self._masked = Masked(mask) if mask else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def close(self) -> None:
        with suppress(OSError):
            if self._file:
                self._file.close()

    def add(self, part: bytes) -> None:
        """Add the next bytes. If the disk is full, they are missing only in the file."""
        if self._masked:
            part = _encoded(self._masked.feed(self._decoder.decode(part)))
        self._add(part)

    def _add(self, part: bytes) -> None:
        self.size += len(part)
        room = MOST_OUTPUT - len(self._begin)
        self._begin += part[:room]
        if later := part[room:]:
            if not self._end:
                self._open()
                self._keep(bytes(self._begin))
            self._keep(later)
            self._end += later
            del self._end[:-_END]

    def tail(self) -> str:
        """Return the end of the output so far, from the start of a line if that is near."""
        last = bytes((self._begin[-MOST_TAIL - 1 :] + self._end)[-MOST_TAIL - 1 :])
        if self.size > MOST_TAIL:
            last = last[last.find(b"\n", 0, MOST_TAIL // 2) + 1 :][-MOST_TAIL:].lstrip(_CONTINUED)
        return codecs.getincrementaldecoder("utf-8")("replace").decode(last)  # drops half a character at the end

    def text(self) -> str:
        """Return the output, or its head, a line about the missing part, and its tail. Call it once."""
        if self._masked:
            rest = self._masked.feed(self._decoder.decode(b"", final=True)) + self._masked.end()
            self._add(_encoded(rest))
        if self.size <= MOST_OUTPUT:
            return self._begin.decode(errors="replace")
        head, tail = bytes(self._begin[:_END]), bytes((self._begin[_END:] + self._end)[-_END:])
        head = head[: head.rfind(b"\n", -_LINE) + 1] or head
        tail = tail[tail.find(b"\n", 0, _LINE) + 1 :]
        tail = tail[:3].lstrip(_CONTINUED) + tail[3:]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        shown = decoder.decode(head)  # drops half a character at the end
        missing = self.size - (len(head) - len(decoder.getstate()[0])) - len(tail)
        words = f"… {missing:,} of {self.size:,} bytes are not shown here. {self._where()} …"
        return "\n".join((shown.removesuffix("\n"), words, tail.decode(errors="replace")))

    def _where(self) -> str:
        if self._file is None:
            return f"The whole output is not kept: {self._fault}"
        if self._written == self.size:
            return f"The whole output is in {self._file.name}"
        with suppress(OSError):
            self._file.write(f"\n… {self.size - self._written:,} more bytes were not kept\n".encode())
        why = f": {self._fault}" if self._fault else f"; a file keeps {MOST_WHOLE:,} bytes"
        return f"The first {self._written:,} bytes are in {self._file.name}{why}"

    def _open(self) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n")
            kept = sorted(self._folder.glob("*.txt"), key=lambda path: path.lstat().st_mtime_ns)
            for old in kept[: max(len(kept) - MOST_FILES + 1, 0)]:
                old.unlink(missing_ok=True)
            self._file = (self._folder / f"{uuid4().hex[:12]}.txt").open("xb", buffering=0)
        except OSError as error:
            self._fault = str(error)

    def _keep(self, part: bytes) -> None:
        part = part[: MOST_WHOLE - _LAST - self._written]
        if self._file is None or self._fault or not part:
            return
        try:
            self._written += self._file.write(part)
        except OSError as error:
            self._fault = str(error)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def shortened(text: str, most: int) -> str:
    """Return a text, or its head and tail with a line that says how much is missing and where the whole is."""
    if len(text) <= most:
        return text
    found = _MARK.search(text, max(len(text) // 2 - 2 * _LINE, 0))
    if found is None:
        return head_and_tail(text, most)
    half = (most - len(found[0])) // 2
    head, tail = text[: found.start()], text[found.end() :]
    missing = int(found[1].replace(",", "")) + sum(len(cut.encode()) for cut in (head[half:], tail[:-half]))
    return f"{head[:half].rstrip()}\n… {missing:,} {found[2]} …\n{tail[-half:].lstrip()}"
