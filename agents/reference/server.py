"""The conversations of one reference agent server; each is loaded from its folder when it is first asked for."""

import os
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from agents.reference.conversation import Conversation
from agents.reference.events import now
from agents.reference.files import Files
from agents.reference.journal import DiskError, Journal
from agents.reference.llm import NO_LLM, Llm, Seal
from agents.reference.log import Log
from agents.reference.mind import Mind, Rule
from agents.reference.model import Model
from agents.reference.terminal import Terminal
from agents.reference.webhooks import Webhooks


class Server:
    """The state of one process. Every method raises DiskError."""

    def __init__(self, key: str, folder: Path, webhooks: Webhooks, llm: Llm = NO_LLM, secret: str = "") -> None:
        """folder: that of all conversations, each in a folder that is named by its id in 32 hex digits.

        llm: what conversations think with whose start request names no other model. secret: what seals models' keys.
        """
        self.key = key
        self.started = self.used = time.monotonic()
        self._folder = folder
        self._webhooks = webhooks
        self._llm = llm
        self._seal = Seal(secret)
        self._loaded: dict[UUID, Conversation] = {}
        self._lock = threading.RLock()

    def works(self) -> bool:
        with self._lock:
            return any(conversation.is_running for conversation in self._loaded.values())

    def find(self, identity: UUID) -> Conversation | None:
        """A conversation; None if there is none of that id."""
        with self._lock:
            return self._loaded.get(identity) or self._load(identity, secrets={})

    def start(
        self, identity: UUID, given: dict[str, Any], secrets: dict[str, str], llm: dict[str, Any] | None = None
    ) -> tuple[Conversation, bool]:
        """The conversation of that id, and whether it is new. llm: what the start request says of the model."""
        llm = llm or {"api_key": ""}
        with self._lock:
            if known := self.find(identity):
                return known, False
            journal = self._journal(identity)
            kept = {**llm, "api_key": self._seal.close(llm["api_key"])}
            make_folder(working_folder(given["workspace"]))
            journal.create({"id": str(identity), "created_at": now(), **given, "llm": kept})
            try:
                new = self._load(identity, secrets, llm["api_key"])
            except DiskError:
                journal.remove()
                raise
            assert new is not None
            return new, True

    def delete(self, identity: UUID) -> bool:
        """Remove a conversation with its folder; False if there is none of that id."""
        with self._lock:
            if conversation := self.find(identity):
                conversation.delete()
                del self._loaded[identity]
            return conversation is not None

    def _load(self, identity: UUID, secrets: dict[str, str], api_key: str = "") -> Conversation | None:
        """api_key: of the model; by default the one that the journal has."""
        journal = self._journal(identity)
        kept = journal.load()
        if kept is None:
            return None
        given, folder = kept.start.get("llm") or {}, working_folder(kept.start["workspace"])
        llm = self._llm.with_given({**given, "api_key": api_key or self._seal.open(given.get("api_key", ""))})
        mind: Mind = Model(llm, folder) if llm.model else Rule()
        kept = kept._replace(start={**kept.start, "agent": described(kept.start["agent"], llm.model)})
        log, files = Log(kept, journal, self._webhooks), Files(folder, self._folder)
        conversation = Conversation(log, mind, Terminal(folder), files, secrets)
        if kept.state is None:
            conversation.begin()
        else:
            conversation.close_what_was_cut_short()
        self._loaded[identity] = conversation
        return conversation

    def _journal(self, identity: UUID) -> Journal:
        return Journal(self._folder / identity.hex)


def working_folder(workspace: dict[str, Any] | None) -> Path:
    """The folder of a conversation, inside the working directory of the process whatever a start request names."""
    here = Path.cwd()
    given = str((workspace or {}).get("working_dir") or ".")
    if Path(given).is_relative_to(here) and ".." not in Path(given).parts:
        return Path(given)
    return here / os.path.normpath(f"/{given}").lstrip("/")


def described(agent: dict[str, Any] | None, model: str) -> dict[str, Any]:
    """The agent as clients are told of it: as the start request has it, with what the SDK needs to read it."""
    tools = [{"name": name} for name in ("terminal", "file_editor")] if model else []
    llm = {"model": model or "none", "usage_id": "agent"}
    return {"kind": "Agent", "llm": llm, "tools": tools, **(agent or {})}


def make_folder(folder: Path) -> None:
    """Raises DiskError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DiskError("make the working folder", folder, error) from error
