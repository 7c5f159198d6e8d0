"""The blocking client. Made by docs/make.py from `_async.py`."""

import contextlib
import json
import os
import posixpath
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeAlias
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx

from agent_server_client.archives import pack, unpack
from agent_server_client.errors import AgentServerError
from agent_server_client.models import (
    AppConversationStartTask,
    AskedDestinationInfo,
    ConversationInfo,
    DecisionsResult,
    DestinationDecided,
    Event,
    GitChange,
    GitDiff,
    KeyInfo,
    ListedConversation,
    NewKey,
    PreviewAddress,
    SandboxInfo,
    ServerInfo,
    User,
    WaitingAction,
)
from agent_server_client.proxies import bad_proxy, is_loopback
from agent_server_client.wire import (
    SILENCE,
    STOPPED,
    Entry,
    Lines,
    Output,
    Patience,
    Sent,
    Tries,
    goes_on,
    passing,
    status_of,
)

#: seconds between two polls of what has no stream, and bytes that are read of a file at once
_POLL, _PIECE = 0.25, 1 << 16

#: items of a page
_PAGE = 100

#: seconds for which the inbox may be behind the log
_BEHIND = 30.0

#: seconds before a stream that its server ended is opened again, as the server asks of browsers
_ENDED: float | None = 1.0


class Client:
    """A client of one server, with one key.

    url, key: AGENT_SERVER_URL and AGENT_SERVER_KEY by default. timeout: seconds of silence after which a response is
    given up. retry_seconds: how long a request is tried again that may be: a GET, DELETE or PATCH, and a POST with an
    Idempotency-Key, after a lost connection, or a 503, 429 or 409 with a Retry-After. A stream connects again for as
    long after the last that came. first_seconds: how long a server is tried again that has never answered; None: as any
    other. on_retry: called before each repeat with the error, the seconds since the first try, and those that are left.
    on_unknown_key: called after each response of an open server that does not know the key, and serves it all the same.
    Every method raises AgentServerError.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        timeout: float = 60.0,
        retry_seconds: float = 120.0,
        first_seconds: float | None = None,
        on_retry: Callable[[AgentServerError, float, float], None] | None = None,
        on_unknown_key: Callable[[], None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = (url or os.environ.get("AGENT_SERVER_URL") or "http://127.0.0.1:8000").rstrip("/")
        key = key or os.environ.get("AGENT_SERVER_KEY", "")
        self._patience = Patience(retry_seconds, first_seconds, on_retry)
        self._on_unknown_key = on_unknown_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(keepalive_expiry=1)  # the server ends a connection that was idle for 5 s
        timeouts = httpx.Timeout(timeout, connect=min(timeout, 10.0))
        verify = not self.url.startswith("http://")  # to load the certificates would take longer than a request
        if is_loopback(self.url) and transport is None:  # with a transport httpx reads no proxy of the environment
            transport = httpx.HTTPTransport(verify=verify, limits=limits)
        try:
            self._http = httpx.Client(
                base_url=self.url, headers=headers, timeout=timeouts, limits=limits, transport=transport, verify=verify
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise bad_proxy(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, *, again: bool = True, **options: Any) -> httpx.Response:
        """Send a request, and return its response, which is a success. options: as httpx takes them.

        again: whether it may be sent more than once. A POST bears an Idempotency-Key then.
        """
        headers = {"Idempotency-Key": uuid4().hex} if again and method == "POST" else {}
        headers |= options.pop("headers", {})
        tries = Tries(self._patience.seconds if again else 0.0, self._patience)
        while True:
            asked: float | None = 0.0
            cause: httpx.TransportError | None = None
            try:
                response = self._http.request(method, path, headers=headers, **options)
            except httpx.TransportError as error:
                refusal, cause, asked = self._unreachable(error), error, tries.asked_by_silence
            else:
                self._patience.has_answered = True
                self._look_at(response)
                if not response.is_error:
                    return response
                refusal, asked = AgentServerError.of(response), passing(response)
            pause = None if asked is None else tries.pause(asked, refusal)
            if pause is None:
                raise refusal from cause
            time.sleep(pause)

    def get(self, path: str, /, **params: Any) -> Any:
        """The JSON of a GET. params: those that are None are left out."""
        return (self.request("GET", path, params=_given(params))).json()

    def post(self, path: str, body: dict[str, Any] | None = None, *, again: bool = True) -> Any:
        """The JSON of a POST."""
        return (self.request("POST", path, json=body or {}, again=again)).json()

    def pages(self, path: str, /, **params: Any) -> Iterator[Any]:
        """The items of all pages of a list. Raises AgentServerError where a page names itself as the next one."""
        page_id = None
        while True:
            page = self.get(path, **params, page_id=page_id)
            for item in page["items"]:
                yield item
            if page["next_page_id"] is None:
                return
            if page["next_page_id"] == page_id:
                raise AgentServerError(None, f"{self.url}{path} returns the page {page_id} without end")
            page_id = page["next_page_id"]

    def stream(self, path: str, cursor: str = "") -> Iterator[Sent]:
        """The events of a stream that has no end, each once, through restarts of the server.

        cursor: the `id` of the event to go on after.
        """
        tries, timeout = Tries(self._patience.seconds, self._patience), httpx.Timeout(SILENCE, connect=10.0)
        while True:
            headers = {"Last-Event-ID": cursor} if cursor else {}
            refusal, asked = AgentServerError(None, f"{self.url} ended the stream"), _ENDED
            try:
                with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                    self._patience.has_answered = True
                    self._look_at(response)
                    if response.is_error:
                        response.read()
                        refusal, asked = AgentServerError.of(response), passing(response)
                    else:
                        lines = Lines()
                        for piece in response.iter_bytes():
                            tries.begin()
                            for sent in lines.feed(piece):
                                cursor = sent.id or cursor
                                yield sent
            except httpx.TransportError as error:
                refusal, asked = self._unreachable(error), tries.asked_by_silence
            pause = None if asked is None else tries.pause(asked, refusal)
            if pause is None:
                raise refusal
            time.sleep(pause)

    def conversation(self, conversation_id: str) -> "Conversation":
        """A conversation by its id, without a request. Raises ValueError for what is not a UUID."""
        return Conversation(self, str(UUID(conversation_id)))

    def start(
        self,
        text: str = "",
        *,
        folder: Path | None = None,
        title: str | None = None,
        model: str | None = None,
        spec: str | None = None,
        on_progress: Callable[[AppConversationStartTask], None] | None = None,
        seconds: float = 300.0,
    ) -> "Conversation":
        """Start a conversation with an agent in a sandbox, and return it when it is READY.

        text: the first message, with which the agent begins to run. folder: of this machine; the sandbox begins with
        its files. spec: the id of a sandbox spec. on_progress: gets each state of the start. seconds: most to wait.
        """
        sandbox = self.start_sandbox(folder, spec) if folder is not None else None
        message = {"content": [{"type": "text", "text": text}], "run": True} if text else None
        wanted = {"initial_message": message, "title": title, "llm_model": model}
        place = {"sandbox_id": sandbox["id"]} if sandbox else {"sandbox_spec_id": spec}
        try:
            task: AppConversationStartTask = self.post("/api/v1/app-conversations", _given(wanted | place))
        except AgentServerError:
            if sandbox:
                self.request("DELETE", f"/api/v1/sandboxes/{sandbox['id']}")
            raise
        tries, shown = Tries(seconds), None
        while True:
            if task["status"] != shown:
                shown = task["status"]
                if on_progress:
                    on_progress(task)
            if shown == "ERROR":
                raise AgentServerError(None, task["detail"] or "The start failed")
            if shown == "READY" and task["app_conversation_id"]:
                return self.conversation(task["app_conversation_id"])
            if tries.are_over:
                raise AgentServerError(None, f"The start {task['id']} takes longer than {seconds:.0f} s, and continues")
            time.sleep(_POLL)
            [found] = self.get("/api/v1/app-conversations/start-tasks", ids=task["id"])
            if found is None:
                raise AgentServerError(404, f"The start task {task['id']} is gone")
            task = found

    def search(
        self, *, text: str | None = None, status: str | None = None, tag: str | None = None
    ) -> Iterator[ListedConversation]:
        """All conversations that pass the filters, those that changed last first."""
        return self.pages("/api/v1/conversations/search", text=text, status=status, tag=tag, limit=_PAGE)

    def pending_actions(
        self,
        *,
        conversation_id: str | None = None,
        tool_name: str | None = None,
        security_risk: str | None = None,
        text: str | None = None,
    ) -> list["PendingAction"]:
        """What waits for a decision, the oldest first: the inbox."""
        filters = {"conversation_id": conversation_id, "tool_name": tool_name, "security_risk": security_risk}
        return [
            PendingAction(self, item)
            for item in self.pages("/api/v1/pending-actions", **filters, text=text, limit=_PAGE)
        ]

    def destinations(self, *, sandbox_id: str | None = None) -> list["Destination"]:
        """What sandboxes ask to reach and waits for a decision, the longest wait first."""
        return [
            Destination(self, item) for item in self.pages("/api/v1/destinations", sandbox_id=sandbox_id, limit=_PAGE)
        ]

    def inbox(self, *, destinations: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
        """Follow the inbox: (name, data) of `reset`, `snapshot`, `ready`, `opened`, `decided`, `expired`, `closed`.

        destinations: also `destinations`, and `destination_opened`, `_decided`, `_expired` and `_closed`.
        """
        for sent in self.stream(f"/api/v1/pending-actions/stream{'?destinations=true' if destinations else ''}"):
            yield sent.name, json.loads(sent.data)

    def sandboxes(self) -> Iterator[SandboxInfo]:
        """All sandboxes, the newest first."""
        return self.pages("/api/v1/sandboxes/search", limit=_PAGE)

    def start_sandbox(self, folder: Path, spec: str | None = None) -> SandboxInfo:
        """Start a sandbox with the files of a folder of this machine (archives.pack says which)."""
        with tempfile.TemporaryFile() as file:
            pack(folder, file)
            file.seek(0)
            params = _given({"from": "archive", "sandbox_spec_id": spec})
            kind = {"Content-Type": "application/x-tar"}
            options = {"params": params, "content": _pieces(file), "headers": kind, "timeout": 600.0}
            sandbox: SandboxInfo = (self.request("POST", "/api/v1/sandboxes", again=False, **options)).json()
            return sandbox

    def keys(self) -> list[KeyInfo]:
        """The keys that admins made, the newest first."""
        keys: list[KeyInfo] = self.get("/api/v1/keys")
        return keys

    def make_key(self, name: str, scopes: list[str], expires_at: str | None = None) -> NewKey:
        """Make a key. This response alone shows it."""
        key: NewKey = self.post("/api/v1/keys", {"name": name, "scopes": scopes, "expires_at": expires_at})
        return key

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key: it opens nothing any more."""
        self.request("DELETE", f"/api/v1/keys/{quote(key_id, safe='')}")

    def server_info(self) -> ServerInfo:
        """What the server says of itself."""
        info: ServerInfo = self.get("/server_info")
        return info

    def user(self) -> User:
        """Who asks, and what they may do."""
        user: User = self.get("/api/v1/users/me")
        return user

    def _look_at(self, response: httpx.Response) -> None:
        if self._on_unknown_key and response.headers.get("X-Key-Status") == "unknown":
            self._on_unknown_key()

    def _unreachable(self, error: httpx.TransportError) -> AgentServerError:
        return AgentServerError(None, f"{self.url} does not answer: {str(error) or type(error).__name__}")


class Conversation:
    """A conversation, by its id."""

    def __init__(self, client: Client, conversation_id: str) -> None:
        self.client, self.id = client, conversation_id
        self.files = Files(self)
        self._path = f"/api/conversations/{conversation_id}"

    def info(self) -> ConversationInfo:
        """Its state."""
        info: ConversationInfo = self.client.get(self._path)
        return info

    def send(self, text: str, *, run: bool = True, rejects: bool = True) -> None:
        """Send a user's message. run: whether the agent begins to run.

        rejects: whether it rejects what waits for a decision; if not, it raises AgentServerError (409) while an action
        waits, and is not sent.
        """
        message = {"content": [{"type": "text", "text": text}], "run": run, "rejects": rejects}
        self.client.post(f"{self._path}/events", message)

    def run(self) -> None:
        """Let the agent go on. Raises AgentServerError (409) while an action waits: the run would approve it."""
        self.client.post(f"{self._path}/run?accepts=false")

    def pause(self) -> None:
        """Ask the agent to stop after its present step."""
        self.client.post(f"{self._path}/pause")

    def interrupt(self) -> None:
        """Ask the agent to stop at once."""
        self.client.post(f"{self._path}/interrupt")

    def set_policy(self, kind: str, **members: Any) -> None:
        """Set which actions wait: NeverConfirm, AlwaysConfirm, or ConfirmRisky with `threshold`."""
        self.client.post(f"{self._path}/confirmation_policy", {"policy": {"kind": kind, **members}})

    def search(self, **filters: Any) -> Iterator[Event]:
        """The events that pass the filters (kind, source, body, timestamp__gte, timestamp__lt), by their times."""
        return self.client.pages(f"{self._path}/events/search", **filters, limit=_PAGE)

    def count(self, **filters: Any) -> int:
        """The number of events that pass the filters of search."""
        number: int = self.client.get(f"{self._path}/events/count", **filters)
        return number

    def events(self, after: int = 0) -> Generator[Entry, None]:
        """Follow the log from the event after a seq on: each event once, through restarts of the server."""
        for sent in self.client.stream(f"{self._path}/events/stream", str(after)):
            yield Entry(int(sent.id) if sent.id else None, json.loads(sent.data))

    def log(self, after: int = 0) -> Iterator[Entry]:
        """The log as it is now, from the event after a seq on."""
        last = self.count()
        if last <= after:
            return
        with contextlib.closing(self.events(after)) as entries:
            for entry in entries:
                yield entry
                if entry.seq is not None and entry.seq >= last:
                    return

    def follow(self, after: int = 0) -> Generator["Entry | PendingAction", None]:
        """Follow the log until the agent stops: its entries, and each action that waits for a decision once.

        The agent stops at the status finished, idle, paused, error or stuck after it has run, unless the run goes on by
        itself after a crash.
        """
        has_run, waits, recovers, last, shown = False, False, False, "", set[str]()
        with contextlib.closing(self.events(after)) as entries:
            for entry in entries:
                yield entry
                status = status_of(entry.event)
                recovered, recovers = recovers, goes_on(entry.event, recovers)
                if status is not None:
                    last, waits = status, status == "waiting_for_confirmation"
                    has_run = has_run or waits or status == "running"
                if has_run and last in STOPPED and not recovers and (status is not None or recovered):
                    return
                if waits and (status is not None or entry.event["kind"] == "ActionEvent"):
                    for action in self._opened():
                        if action.id not in shown:
                            shown.add(action.id)
                            yield action

    def _opened(self) -> list["PendingAction"]:
        """What waits here, once the inbox has it: the log is a moment ahead of it."""
        tries = Tries(_BEHIND)
        while not tries.are_over:
            if actions := self.pending_actions():
                return actions
            if (self.info())["execution_status"] != "waiting_for_confirmation":
                break
            time.sleep(_POLL)
        return []

    def pending_actions(self) -> list["PendingAction"]:
        """Its actions that wait for a decision, in the order of the log."""
        return self.client.pending_actions(conversation_id=self.id)

    def decide(self, actions: list["PendingAction"], decision: str, **members: Any) -> DecisionsResult:
        """Decide actions, all or none, each bound to the digest of what was shown.

        decision: approve, reject or edit. members: `reason`, `arguments` or `always`.
        Raises AgentServerError (409) with `problems`: somebody was faster, or the action is another one by now.
        """
        decisions = [
            {"action_id": one.id, "decision": decision, "digest": one.item["digest"], **members} for one in actions
        ]
        path = f"/api/v1/conversation/{self.id}/pending-actions/decisions"
        result: DecisionsResult = self.client.post(path, {"decisions": decisions})
        return result

    def changes(
        self, path: str = ".", *, since: str | int | None = None, until: str | int | None = None
    ) -> list[GitChange]:
        """The changed files of the repository at a path; with `since`, of the folder, which needs none.

        since: "start" of the conversation, or before an event, by its seq or its id. until: likewise; None: now.
        Raises AgentServerError where the agent has no Git, and where the folder was not recorded then.
        """
        at = f"/api/v1/app-conversations/{self.id}/git/changes"
        changes: list[GitChange] = self.client.get(at, path=path, since=since, until=until)
        return changes

    def diff(self, path: str, *, since: str | int | None = None, until: str | int | None = None) -> GitDiff:
        """A changed file as it is and as it was; since, until: as in `changes`."""
        at = f"/api/v1/app-conversations/{self.id}/git/diff"
        diff: GitDiff = self.client.get(at, path=path, since=since, until=until)
        return diff

    def execute(self, command: str, *, cwd: str | None = None, seconds: int = 600) -> Generator[Output, None]:
        """Run a shell command in the sandbox, as the agent's user; nobody is asked. cwd: its folder by default.

        Who stops reading stops the command. Raises AgentServerError where the agent serves no commands.
        """
        body = _given({"command": command, "cwd": cwd, "timeout": seconds})
        begun = self.client.post(f"{self._path}/bash/start_bash_command", body, again=False)
        search, order = f"{self._path}/bash/bash_events/search", -1
        wanted = {"command_id__eq": begun["id"], "kind__eq": "BashOutput", "sort_order": "TIMESTAMP"}
        tries, has_ended = Tries(seconds + 30.0), False
        try:
            while not tries.are_over:
                outputs = (self.client.get(search, **wanted, order__gt=order, limit=_PAGE))["items"]
                for one in sorted(outputs, key=lambda output: int(output["order"])):
                    order, has_ended = one["order"], one.get("exit_code") is not None
                    yield Output(one.get("stdout") or "", one.get("stderr") or "", one.get("exit_code"))
                    if has_ended:
                        return
                if not outputs:
                    time.sleep(_POLL)
            raise AgentServerError(None, f"The command has not ended within {seconds} s")
        finally:
            if not has_ended:
                with contextlib.suppress(AgentServerError):
                    self.client.post(f"{self._path}/bash/bash_commands/{begun['id']}/stop", again=False)

    def preview(self, port: int) -> PreviewAddress:
        """The address of what a program in the sandbox serves at a port: it opens in one browser, once, and soon.

        Raises AgentServerError where nothing listens there, and unless the key has the scopes write and approve.
        """
        [found] = self.client.get("/api/v1/app-conversations", ids=self.id)
        if found is None:
            raise AgentServerError(404, "No such conversation has a sandbox: only what runs in one has a preview")
        path = f"/api/v1/sandboxes/{found['sandbox_id']}/previews"
        address: PreviewAddress = self.client.post(path, {"port": port}, again=False)
        return address

    def delete(self) -> None:
        """Delete the conversation, and its sandbox unless another conversation is in it."""
        try:
            self.client.request("DELETE", f"/api/v1/app-conversations/{self.id}")
        except AgentServerError as error:
            if error.status != 404:
                raise
            self.client.request("DELETE", self._path)  # one without a sandbox


class PendingAction:
    """An action that waits for a decision, as it was shown: a decision is bound to its digest."""

    def __init__(self, client: Client, item: WaitingAction) -> None:
        self.item = item
        self.id = item["action_id"]
        self.conversation = client.conversation(item["conversation_id"])

    def approve(self) -> None:
        """Let the agent do exactly this. Raises AgentServerError (409) where it is decided or another one by now."""
        self.conversation.decide([self], "approve")

    def reject(self, reason: str = "") -> None:
        """Refuse it; the agent reads the reason. Raises as approve does."""
        self.conversation.decide([self], "reject", **({"reason": reason} if reason else {}))


class Destination:
    """What a sandbox asks for, as it was shown: a decision is bound to its digest.

    id: `NAME:PORT` that it asks to reach; of a budget `budget:conversation`, `budget:key` or `budget:day`.
    """

    def __init__(self, client: Client, item: AskedDestinationInfo) -> None:
        self.client, self.item = client, item
        self.budget = item.get("budget")  # a server of before budgets were asked for sends none
        of = self.budget["setting"].removeprefix("MODEL_BUDGET_").lower() if self.budget else ""
        self.id = f"budget:{of}" if self.budget else f"{item['name']}:{item['port']}"

    def approve(self, scope: str = "once") -> DestinationDecided:
        """Let the sandbox connect. scope: `once`; `conversation`, as long as the sandbox is; `always`, by a rule.

        A budget has the same amount once more, by scope `once` alone.
        Raises AgentServerError (404, 409) where it is decided, expired or asked anew by now.
        """
        return self._decide("approve", scope)

    def reject(self, reason: str = "", scope: str = "conversation") -> DestinationDecided:
        """Refuse it; the audit has the reason. Raises as approve does."""
        return self._decide("reject", scope, **({"reason": reason} if reason else {}))

    def _decide(self, decision: str, scope: str, **members: str) -> DestinationDecided:
        item = self.item
        name = {"name": item["name"], "port": item["port"]}
        of = {"budget": self.budget["setting"]} if self.budget else name
        shown = {"sandbox_id": item["sandbox_id"], **of, "digest": item["digest"]}
        body = {**shown, "decision": decision, "scope": scope, **members}
        decided: DestinationDecided = self.client.post("/api/v1/destinations/decisions", body)
        return decided


#: paths in a sandbox, and of this machine: `list` is a method below
_Names: TypeAlias = list[str]
_Written: TypeAlias = list[Path]


class Files:
    """The files of a conversation's sandbox. Paths are relative to its folder."""

    def __init__(self, conversation: Conversation) -> None:
        self._client, self._id = conversation.client, conversation.id

    def list(self, path: str = ".") -> _Names:
        """The paths of its files, at most 2,000."""
        names: _Names = self._client.get(f"/api/v1/app-conversations/{self._id}/files", path=path)
        return names

    def read(self, path: str) -> str:
        """The text of a file. Raises AgentServerError (404) where there is none."""
        text: str = self._client.get(f"/api/v1/app-conversations/{self._id}/file", file_path=path)
        return text

    def download(self, path: str = "", to: Path = Path()) -> _Written:
        """Write a file, or the files of a folder, to this machine, and return their paths (archives.unpack)."""
        info = (self._client.get("/api/v1/app-conversations", ids=self._id))[0]
        if info is None:
            raise AgentServerError(404, "There is no conversation of that id with a sandbox")
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "files.tar.zst"
            try:
                with self._client._http.stream("GET", f"/api/v1/sandboxes/{info['sandbox_id']}/archive") as sent:
                    if sent.is_error:
                        sent.read()
                        raise AgentServerError.of(sent)
                    with archive.open("wb") as file:
                        for piece in sent.iter_bytes():
                            file.write(piece)
            except httpx.TransportError as error:
                raise self._client._unreachable(error) from error
            return unpack(archive, path, to)

    def _folder(self) -> str:
        """The absolute path of the folder in the sandbox, which an agent server wants of an upload."""
        conversation = self._client.conversation(self._id)
        workspace = (conversation.info()).get("workspace")
        folder = str(workspace.get("working_dir") or "") if isinstance(workspace, dict) else ""
        if folder.startswith("/"):
            return folder
        return "".join([piece.stdout for piece in conversation.execute("pwd")]).strip()

    def upload(self, file: Path, path: str) -> None:
        """Write a file of this machine into the sandbox. Raises AgentServerError where the agent takes no files."""
        place = posixpath.normpath(posixpath.join(self._folder(), path))
        with file.open("rb") as content:
            options = {"params": {"path": place}, "files": {"file": (file.name, content)}}
            self._client.request("POST", f"/api/conversations/{self._id}/file/upload", again=False, **options)


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece
