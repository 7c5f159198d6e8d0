"""Reads names and single files of sandboxes for workers, whether the sandbox runs, is paused or has ended."""

import itertools
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import closing

from runtimes import FileTooLong, FolderNotKept, Launch, Runtime, RuntimeFailure
from specs import Specs
from store import Store
from store.sandboxes.sandbox_files import MOST_BYTES, MOST_NAMES, Found
from store.sandboxes.sandbox_record import SandboxId
from supervisor.launches import files_of

log = logging.getLogger("supervisor")


class Files:
    """The files of one host's sandboxes. Any number of threads may use it."""

    def __init__(self, store: Store, specs: Specs, runtimes: Mapping[str, Runtime], host: str) -> None:
        self._store = store
        self._specs = specs
        self._runtimes = runtimes
        self._host = host

    def send_names(self, sandbox_id: SandboxId, folder: str, reply: str) -> None:
        """Reply with the names of the files in a folder of an agent, if the sandbox is this host's."""

        def listed(runtime: Runtime, order: Launch) -> bytes:
            with closing(runtime.names(order, folder)) as names:  # type: ignore[type-var]  # a generator
                return json.dumps([os.fsdecode(name) for name in itertools.islice(names, MOST_NAMES)]).encode()

        self._send(sandbox_id, reply, listed)

    def send_content(self, sandbox_id: SandboxId, folder: str, path: str, reply: str) -> None:
        """Reply with a file in a folder of an agent, likewise."""
        self._send(sandbox_id, reply, lambda runtime, order: runtime.content(order, folder, path, MOST_BYTES))

    def _send(self, sandbox_id: SandboxId, reply: str, read: Callable[[Runtime, Launch], bytes | None]) -> None:
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        if sandbox is None or sandbox.host != self._host:
            return
        files = self._store.sandbox_files
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            files.answer(reply, Found.FAILED, f"There is no spec {sandbox.spec_id} on host {self._host}".encode())
            return
        try:
            found = read(self._runtimes[spec.runtime], files_of(sandbox, spec))
        except FolderNotKept as error:
            files.answer(reply, Found.NOT_KEPT, str(error).encode())
        except FileTooLong as error:
            files.answer(reply, Found.TOO_LONG, str(error).encode())
        except RuntimeFailure as error:
            log.warning("the files of sandbox %s: %s", sandbox_id, error)
            files.answer(reply, Found.FAILED, f"The files of the sandbox cannot be read: {error}".encode())
        else:
            files.answer(reply, Found.NOTHING if found is None else Found.CONTENT, found or b"")
