"""Archives of sandboxes between clients and supervisors: a response that streams one, a body that is one."""

from collections.abc import Iterator
from contextlib import suppress

from flask import current_app, request
from werkzeug.exceptions import UnsupportedMediaType

from blueprints import current_store
from boot.body import body_of
from store.errors import UNAVAILABLE, NotDoneYet, SandboxNotFound
from store.sandboxes.archives import Outcome, Receiver, Sender
from store.sandboxes.sandbox_record import Sandbox, SandboxId

#: the media types of archives: packed as a tar stream, and how that is compressed
MEDIA_TYPES = {"application/zstd": "zstd", "application/x-tar": "none"}

#: seconds in which what was sent must be unpacked, and in which the sandbox of a refused archive must be gone
_UNPACK_TIMEOUT, _END_TIMEOUT = 60.0, 8.0

#: bytes that are read of a body at once: few enough that they come at the least rate before the receiver gives up
_PIECE = 16 * 1024


class ArchiveBody:
    """The body of a response, which breaks off with an error unless the archive is whole.

    A class, because a generator that was never started is not closed.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def __iter__(self) -> Iterator[bytes]:
        return self._receiver

    def close(self) -> None:
        self._receiver.close(Outcome.FAILED, "The client has gone")


def start_from_archive(spec_id: str) -> Sandbox:
    """Start a sandbox with the files of the archive that is the request's body; returns once all are unpacked.

    Where the archive is refused or does not come whole, nothing is left of the sandbox.
    """
    form = MEDIA_TYPES.get(request.mimetype)
    if form is None:
        allowed = " or ".join(MEDIA_TYPES)
        raise UnsupportedMediaType(f"Content-Type must be {allowed}, not {request.mimetype or 'absent'}")
    request.max_content_length = current_app.config["MAX_ARCHIVE_BYTES"]
    stream = request.stream
    if body := body_of(request.environ):
        body.stream()
    sender = current_store.archives.sender(current_store.archives.open())
    sandbox = current_store.sandboxes.start(spec_id, source={"archive": sender.id, "format": form})
    try:
        while piece := stream.read(_PIECE):
            sender.write(piece)
        sender.end()
        sender.confirmed(_UNPACK_TIMEOUT)
    except BaseException:  # also the end of this worker
        _discard(sandbox.id, sender)
        raise
    return current_store.sandboxes.get(sandbox.id)


def _discard(sandbox_id: SandboxId, sender: Sender) -> None:
    """End a sandbox whose archive did not come whole. Without Redis its supervisor makes it ERROR."""
    with suppress(*UNAVAILABLE):
        sender.fail(Outcome.FAILED, "The upload stopped before its end")
        with suppress(SandboxNotFound, NotDoneYet):
            current_store.sandboxes.ask(sandbox_id, "delete", wait=_END_TIMEOUT)
