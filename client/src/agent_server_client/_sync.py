"""The blocking client. Made by docs/make.py from `_async.py`."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from math import inf
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx

from agent_server_client._sync_files import Files
from agent_server_client._sync_sandboxes import Sandbox
from agent_server_client._sync_waiting import Destination, PendingAction
from agent_server_client.archives import pack
from agent_server_client.errors import AgentServerError, checked_key
from agent_server_client.models import (
    ActionDecision,
    AppConversationStartTask,
    ApprovalMode,
    ApprovalRule,
    AuditEntry,
    ConversationInfo,
    DecisionsResult,
    DeviceInfo,
    Event,
    FolderRecords,
    GitChange,
    GitDiff,
    GrantInfo,
    KeyInfo,
    ListedConversation,
    NewKey,
    NotificationOutcome,
    PreviewAddress,
    Push,
    Record,
    Remote,
    Return,
    SandboxInfo,
    SandboxSpecInfo,
    ServerInfo,
    User,
)
from agent_server_client.proxies import bad_proxy, is_loopback
from agent_server_client.starts import no_place, waits_for_place
from agent_server_client.turns import BEGINS, REJECTION, Progress
from agent_server_client.wire import (
    NOT_SENT,
    SILENCE,
    STOPPED,
    Entry,
    EventStreamLines,
    Output,
    Patience,
    Sent,
    Tries,
    clock_ahead,
    passing,
)

__all__ = [
    "Client",
    "Conversation",
    "Destination",
    "Files",
    "PendingAction",
    "Sandbox",
    "Turn",
]

#: Poll interval without a stream, in seconds. Size of one read of a file, in bytes.
_POLL, _PIECE = 0.25, 1 << 16

#: Number of items in a page.
_PAGE = 100

#: Maximum number of actions in a request for decisions.
_DECISIONS = 100

#: Seconds by which a rejection may arrive after the status that it causes.
_TRAIL = 1.0

#: Maximum lag of the inbox behind the log, in seconds.
_BEHIND = 30.0

#: Minimum time before a stream with a time limit is reopened, in seconds.
_YOUNG = 5.0

#: Seconds until a stream that its server ended is reopened, as the server asks of browsers.
_ENDED: float | None = 1.0


class Client:
    """A client of one server, with one key.

    url, key: default to AGENT_SERVER_URL and AGENT_SERVER_KEY. timeout: seconds of silence until a response times out.
    retry_seconds: how long a request is retried after a lost connection, or after a 503, 429 or 409 with a Retry-After.
    Retried are GET, DELETE, PATCH, and POST with an Idempotency-Key. A stream reconnects for that long after its last
    event. first_seconds: retry_seconds for a server that has never responded; None: the same. on_retry: called before
    each retry with the error, the seconds since the first try, and the seconds that are left. on_unknown_key: called
    after each response of an open server that does not know the key, but serves it. Every method raises
    AgentServerError.
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
        key = checked_key(key or os.environ.get("AGENT_SERVER_KEY", ""))
        self._patience = Patience(retry_seconds, first_seconds, on_retry)
        self._on_unknown_key = on_unknown_key
        self.clock_ahead = 0.0  #: seconds by which the server's clock is ahead of this machine's, to about a second
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(keepalive_expiry=1)  # the server closes idle connections after 5 s
        timeouts = httpx.Timeout(timeout, connect=min(timeout, 10.0))
        verify = not self.url.startswith("http://")  # loading the certificates would take longer than a request
        if is_loopback(self.url) and transport is None:  # with a transport, httpx ignores proxy variables
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

    def request(
        self, method: str, path: str, *, again: bool = True, waits: bool = True, **options: Any
    ) -> httpx.Response:
        """Send a request, and return its successful response. options: of httpx.

        again: whether it may be sent more than once. A POST then has an Idempotency-Key.
        waits: whether it is retried after a 429.
        """
        headers = {"Idempotency-Key": uuid4().hex} if again and method == "POST" else {}
        headers |= options.pop("headers", {})
        tries = Tries(self._patience.seconds if again else 0.0, self._patience)
        may_have_arrived = False
        with self._patience:  # a pause between two tries counts as waiting
            while True:
                asked: float | None = 0.0
                cause: httpx.TransportError | None = None
                try:
                    response = self._http.request(method, path, headers=headers, **options)
                except httpx.TransportError as error:
                    may_have_arrived |= method != "GET" and not isinstance(error, NOT_SENT)
                    refusal, cause, asked = self._unreachable(error, may_have_arrived), error, tries.asked_by_silence
                else:
                    self._patience.hear()
                    self._look_at(response)
                    if not response.is_error:
                        return response
                    refusal, asked = AgentServerError.of(response), passing(response)
                is_left = asked is None or (refusal.status == 429 and not waits)
                pause = None if is_left else tries.pause(asked or 0.0, refusal)
                if pause is None:
                    raise refusal from cause
                time.sleep(pause)

    def get(self, path: str, /, **params: Any) -> Any:
        """Return the JSON of a GET. params: None values are omitted."""
        return (self.request("GET", path, params=_given(params))).json(object_hook=Record)

    def post(self, path: str, body: dict[str, Any] | None = None, *, again: bool = True, waits: bool = True) -> Any:
        """Return the JSON of a POST. again, waits: see `request`."""
        response = self.request("POST", path, json=body or {}, again=again, waits=waits)
        return response.json(object_hook=Record)

    def pages(self, path: str, /, **params: Any) -> Iterator[Any]:
        """Yield the items of all pages of a list. Raises AgentServerError for a page that repeats."""
        page_id = None
        while True:
            page = self.get(path, **params, page_id=page_id)
            for item in page["items"]:
                yield item
            if page["next_page_id"] is None:
                return
            if page["next_page_id"] == page_id:
                raise AgentServerError(502, f"{self.url}{path} returns the page {page_id} endlessly. Update the server")
            page_id = page["next_page_id"]

    def stream(self, path: str, cursor: str = "", *, seconds: float = inf) -> Iterator[Sent]:
        """Yield the events of an endless stream, each once, also across restarts of the server.

        cursor: the `id` of the last known event. seconds: maximum time to read; then raises AgentServerError (504).
        """
        tries, whole = Tries(self._patience.seconds, self._patience), Tries(seconds)
        with self._patience:
            while True:
                timeout, opened = httpx.Timeout(max(0.01, min(SILENCE, whole.left)), connect=10.0), Tries(_YOUNG)
                headers = {"Last-Event-ID": cursor} if cursor else {}
                refusal, asked = AgentServerError(None, f"{self.url} ended the stream. Follow it again"), _ENDED
                try:
                    opening = self._http.stream("GET", path, headers=headers, timeout=timeout)
                    with opening as response:
                        self._patience.hear()
                        self._look_at(response)
                        if response.is_error:
                            response.read()
                            refusal, asked = AgentServerError.of(response), passing(response)
                        else:
                            lines = EventStreamLines()
                            for piece in response.iter_bytes():
                                tries.begin()
                                self._patience.hear()
                                is_comment = True
                                for sent in lines.feed(piece):
                                    cursor, is_comment = sent.id or cursor, False
                                    yield sent
                                if is_comment and opened.are_over and whole.left < SILENCE:
                                    asked = 0.0  # again, with the time that is left: comments would postpone the end
                                    break
                except httpx.TransportError as error:
                    refusal, asked = self._unreachable(error), tries.asked_by_silence
                if whole.are_over:
                    raise AgentServerError(
                        504, f"The agent has not stopped within {seconds:g} s, and goes on. Follow it again"
                    )
                pause = None if asked is None else tries.pause(asked, refusal)
                if pause is None:
                    raise refusal
                time.sleep(pause)

    def conversation(self, conversation_id: str) -> "Conversation":
        """Return a conversation by its id, without a request. Raises ValueError if the id is not a UUID."""
        try:
            return Conversation(self, str(UUID(conversation_id)))
        except ValueError:
            raise ValueError(
                f"{conversation_id!r} is not the whole id of a conversation, a UUID: `agentctl ls --json` prints it"
            ) from None

    def start(
        self,
        text: str = "",
        *,
        folder: Path | str | None = None,
        title: str | None = None,
        model: str | None = None,
        spec: str | None = None,
        mode: str | None = None,
        conversation_id: str | None = None,
        tags: dict[str, str] | None = None,
        goes_on_when_allowed: bool | None = None,
        on_progress: Callable[[AppConversationStartTask], None] | None = None,
        seconds: float = 300.0,
        place_seconds: float = 300.0,
    ) -> "Conversation":
        """Start a conversation with an agent in a sandbox, and return it when it is READY.

        text: the first message, which starts a run; `turn` of the result is about it. folder: of this machine, copied
        into the sandbox. spec: the id of a sandbox spec. mode: a name of `modes`. conversation_id: a UUID of yours. An
        existing conversation of that id is returned unchanged, so a start can be repeated after a crash.
        goes_on_when_allowed: whether the agent is told, and goes on, once a destination or a budget that stopped it is
        allowed; default: yes. on_progress: called with each state of the start. seconds: timeout of the start.
        place_seconds: maximum wait for a place before the start, if the server runs its maximum number of sandboxes; 0:
        no wait. Raises AgentServerError: 429 for no place, 504 for a timeout, otherwise the status of the failure.
        """
        if conversation_id and (known := self._known(conversation_id)):
            return known
        waiting = Tries(place_seconds)
        message = {"content": [{"type": "text", "text": text}], "run": True} if text else None
        named = {"title": title, "llm_model": model, "conversation_id": conversation_id, "tags": tags}
        more = {"approval_mode": mode, "goes_on_when_allowed": goes_on_when_allowed}
        wanted = _given({"initial_message": message, **more, **named})
        sandbox = None
        if folder is not None:
            sandbox = self._placed(lambda: self.start_sandbox(folder, spec), waiting, on_progress)
        place = _given({"sandbox_id": sandbox["id"]} if sandbox else {"sandbox_spec_id": spec})
        try:
            path, body = "/api/v1/app-conversations", wanted | place
            task = self._placed(lambda: self.post(path, body, waits=False), waiting, on_progress)
            conversation = self._started(task, seconds, waiting, on_progress)
        except AgentServerError as error:
            if sandbox and error.status != 504:
                with contextlib.suppress(AgentServerError):
                    self.request("DELETE", f"/api/v1/sandboxes/{sandbox['id']}")
            known = self._known(conversation_id) if conversation_id else None
            if known is None:  # otherwise an earlier start is still in progress
                raise
            return known
        if text:
            conversation.turn = Turn(conversation, 0, text)
        return conversation

    def _known(self, conversation_id: str) -> "Conversation | None":
        """Return the conversation of an id, if it exists."""
        conversation = self.conversation(conversation_id)
        try:
            conversation.info()
        except AgentServerError as error:
            if error.status != 404:
                raise
            return None
        return conversation

    def _placed(
        self,
        ask: Callable[[], Any],
        waiting: Tries,
        on_progress: Callable[[AppConversationStartTask], None] | None,
    ) -> Any:
        """Return the response to a request that needs a place, and retry while there is none."""
        while True:
            try:
                return ask()
            except AgentServerError as error:
                if error.status != 429 or error.retry_after is None or waiting.left <= error.retry_after:
                    raise
                if on_progress:
                    on_progress(no_place(error.detail))
                time.sleep(max(_POLL, error.retry_after))

    def _started(
        self,
        task: AppConversationStartTask,
        seconds: float,
        waiting: Tries,
        on_progress: Callable[[AppConversationStartTask], None] | None,
    ) -> "Conversation":
        """Return the conversation of a start task, once it is READY."""
        tries, shown = Tries(seconds), None
        while True:
            if (task["status"], task["detail"]) != shown:
                shown = task["status"], task["detail"]
                if on_progress:
                    on_progress(task)
            if task["status"] == "ERROR":
                raise AgentServerError(
                    task.get("failure_status") or 502,
                    task["detail"] or "The start failed without a reason. See the server's log",
                )
            if task["status"] == "READY" and task["app_conversation_id"]:
                return self.conversation(task["app_conversation_id"])
            if waits_for_place(task):
                tries.begin()
                if waiting.are_over:
                    with contextlib.suppress(AgentServerError):
                        self.request("DELETE", f"/api/v1/app-conversations/start-tasks/{task['id']}")
                    words = f"{task['detail']}. The start was ended. Give a larger place_seconds to wait longer"
                    raise AgentServerError(429, words)
            elif tries.are_over:
                words = f"The start {task['id']} takes longer than {seconds:g} s, and continues. Look for it later"
                raise AgentServerError(504, words)
            time.sleep(_POLL)
            [found] = self.get("/api/v1/app-conversations/start-tasks", ids=task["id"])
            if found is None:
                raise AgentServerError(404, f"The start task {task['id']} was deleted. Start again")
            task = found

    def conversations(
        self, *, text: str | None = None, status: str | None = None, tag: str | None = None
    ) -> Iterator["Conversation"]:
        """Yield the conversations that pass the filters, the last changed first, with `listed` filled."""
        for item in self.search(text=text, status=status, tag=tag):
            conversation = Conversation(self, item["id"])
            conversation.listed = item
            yield conversation

    def search(
        self, *, text: str | None = None, status: str | None = None, tag: str | None = None
    ) -> Iterator[ListedConversation]:
        """Yield the listed conversations that pass the filters, the last changed first."""
        return self.pages("/api/v1/conversations/search", text=text, status=status, tag=tag, limit=_PAGE)

    def pending_actions(
        self,
        *,
        conversation_id: str | None = None,
        tool_name: str | None = None,
        security_risk: str | None = None,
        text: str | None = None,
        risk: str | None = None,
        effect: str | None = None,
        machine: str | None = None,
        agent: str | None = None,
    ) -> list["PendingAction"]:
        """Yield the inbox: the actions that wait for a decision, the oldest first.

        security_risk: the agent's own rating. risk: the higher of the agent's and the server's. effect: seen by the
        server, such as `deletes`. machine, agent: of an agent outside of the server, as it names itself.
        """
        filters = {"conversation_id": conversation_id, "tool_name": tool_name, "security_risk": security_risk}
        filters |= {"risk": risk, "effect": effect, "machine": machine, "agent": agent}
        return [
            PendingAction(self, item)
            for item in self.pages("/api/v1/pending-actions", **filters, text=text, limit=_PAGE)
        ]

    def destinations(self, *, sandbox_id: str | None = None) -> list["Destination"]:
        """Return the destinations that sandboxes ask for and that wait for a decision, the longest wait first."""
        return [
            Destination(self, item) for item in self.pages("/api/v1/destinations", sandbox_id=sandbox_id, limit=_PAGE)
        ]

    def audit(
        self,
        *,
        text: str | None = None,
        actor: str | None = None,
        decision: str | None = None,
        tool_name: str | None = None,
        conversation_id: str | None = None,
    ) -> Iterator[AuditEntry]:
        """Yield who decided what, the newest first. Needs an admin's key.

        text: a part of the command, the summary, the destination, the reason or the title. actor: a whole name.
        """
        filters = {"text": text, "actor": actor, "decision": decision, "tool_name": tool_name}
        return self.pages(
            "/api/v1/audit", **filters, conversation_id=conversation_id, sort_order="TIME_DESC", limit=_PAGE
        )

    def inbox(self, *, destinations: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
        """Follow the inbox: (name, data) of `reset`, `snapshot`, `ready`, `opened`, `changed` and the ends.

        The ends are `decided`, `expired` and `closed`.
        destinations: also `destinations`, and `destination_opened`, `_decided`, `_expired` and `_closed`.
        """
        for sent in self.stream(f"/api/v1/pending-actions/stream{'?destinations=true' if destinations else ''}"):
            yield sent.name, json.loads(sent.data, object_hook=Record)

    def sandboxes(self) -> Iterator[SandboxInfo]:
        """Yield all sandboxes, the newest first."""
        return self.pages("/api/v1/sandboxes/search", limit=_PAGE)

    def specs(self) -> Iterator[SandboxSpecInfo]:
        """Yield all sandbox specs, the default first: the kinds of sandboxes for a conversation, with their agents."""
        return self.pages("/api/v1/sandbox-specs/search", limit=_PAGE)

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """Return a sandbox by its id, without a request."""
        return Sandbox(self, sandbox_id)

    def start_sandbox(self, folder: Path | str, spec: str | None = None) -> SandboxInfo:
        """Start a sandbox with the files of a folder of this machine (see archives.pack)."""
        with tempfile.TemporaryFile() as file:
            pack(Path(folder), file)
            file.seek(0)
            params = _given({"from": "archive", "sandbox_spec_id": spec})
            kind = {"Content-Type": "application/x-tar"}
            options: dict[str, Any] = {"params": params, "content": _pieces(file), "headers": kind, "timeout": 600.0}
            response = self.request("POST", "/api/v1/sandboxes", again=False, **options)
            sandbox: SandboxInfo = response.json(object_hook=Record)
            return sandbox

    def keys(self) -> list[KeyInfo]:
        """Return the keys that admins made, the newest first."""
        keys: list[KeyInfo] = self.get("/api/v1/keys")
        return keys

    def make_key(self, name: str, scopes: list[str], expires_at: str | None = None) -> NewKey:
        """Make a key. Only this response shows it."""
        key: NewKey = self.post("/api/v1/keys", {"name": name, "scopes": scopes, "expires_at": expires_at})
        return key

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key, which is then refused."""
        self.request("DELETE", f"/api/v1/keys/{quote(key_id, safe='')}")

    def modes(self) -> list[ApprovalMode]:
        """Return the approval modes of the server, the strictest first."""
        modes: list[ApprovalMode] = self.get("/api/v1/approval-modes")
        return modes

    def rules(self, *, ended: bool = False) -> list[ApprovalRule]:
        """Return the approval rules, the newest first. ended: only the revoked ones, with who revoked them and when."""
        asked = {"ended": True} if ended else {}
        rules: list[ApprovalRule] = self.get("/api/v1/approval-rules", **asked)
        return rules

    def make_rule(self, rule: dict[str, Any]) -> ApprovalRule:
        """Make an approval rule. rule: the body of POST /api/v1/approval-rules."""
        made: ApprovalRule = self.post("/api/v1/approval-rules", rule)
        return made

    def revoke_rule(self, rule_id: str) -> None:
        """Revoke an approval rule. Raises AgentServerError (404) if it does not exist."""
        self.request("DELETE", f"/api/v1/approval-rules/{quote(rule_id, safe='')}")

    def grants(self) -> list[GrantInfo]:
        """Return the roles of people and where they apply, the newest first."""
        grants: list[GrantInfo] = self.get("/api/v1/grants")
        return grants

    def make_grant(self, grant: dict[str, Any]) -> GrantInfo:
        """Give a role. grant: the body of POST /api/v1/grants."""
        made: GrantInfo = self.post("/api/v1/grants", grant)
        return made

    def revoke_grant(self, grant_id: str) -> None:
        """Revoke a grant. Raises AgentServerError (404) if it does not exist."""
        self.request("DELETE", f"/api/v1/grants/{quote(grant_id, safe='')}")

    def devices(self) -> list[DeviceInfo]:
        """Return your devices for notifications, the latest renewal first."""
        devices: list[DeviceInfo] = (self.get("/api/v1/devices"))["items"]
        return devices

    def test_device(self, device_id: str) -> NotificationOutcome:
        """Send a test notification to a device of yours. Raises AgentServerError (404) if it does not exist."""
        outcome: NotificationOutcome = self.post(f"/api/v1/devices/{quote(device_id, safe='')}/test", None)
        return outcome

    def end_device(self, device_id: str) -> None:
        """Remove a device of yours. Raises AgentServerError (404) if it does not exist."""
        self.request("DELETE", f"/api/v1/devices/{quote(device_id, safe='')}")

    def server_info(self) -> ServerInfo:
        """Return the server's description of itself."""
        info: ServerInfo = self.get("/server_info")
        return info

    def user(self) -> User:
        """Return the client's user and its permissions."""
        user: User = self.get("/api/v1/users/me")
        return user

    def _look_at(self, response: httpx.Response) -> None:
        self.clock_ahead = clock_ahead(response, self.clock_ahead)
        if self._on_unknown_key and response.headers.get("X-Key-Status") == "unknown":
            self._on_unknown_key()

    def _unreachable(self, error: httpx.TransportError, may_have_arrived: bool = False) -> AgentServerError:
        if may_have_arrived:
            words = f"No answer from {self.url}: it is not known whether this took effect. Look before you repeat it"
            return AgentServerError(None, words, may_have_arrived=True)
        cause = str(error) or type(error).__name__
        words = f"{self.url} does not answer: {cause}. Check that the server runs there"
        return AgentServerError(None, words, is_unreachable=True)


class Turn:
    """A request to an agent, and the agent's work until it stops.

    `follow` and `wait` read each entry of the log once. Each resumes where the last call ended.
    """

    def __init__(self, conversation: "Conversation", after: int, message: str | None = None) -> None:
        self.conversation = conversation  #: its conversation
        self.after = after  #: the last seq of the log before the message
        self.message = message  #: the text that was sent; None for a turn that `run` began
        self._begin()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.conversation.id} after {self.after}: {self.status or 'not read'}>"

    def _begin(self) -> None:
        """Read from the message on."""
        self.seq = self.after  #: the seq of the last entry that was read
        self.entries = list[Entry]()  #: the entries that were read so far
        self._progress = Progress(self.message)

    @property
    def status(self) -> str:
        """The conversation's status as far as this turn was read; "" before."""
        return self._progress.status

    @property
    def is_over(self) -> bool:
        """Whether the agent has stopped."""
        return self._progress.is_over

    @property
    def reply(self) -> str:
        """The agent's reply, as far as this turn was read."""
        return "\n\n".join(words for words in self._progress.words if words)

    @property
    def error(self) -> str:
        """Why the agent failed; "" if it did not."""
        return self._progress.error

    def follow(self, *, seconds: float = inf) -> Generator["Entry | PendingAction", None]:
        """Yield each new entry, and each action that waits for a decision once, until the agent stops.

        seconds: maximum time to follow; then raises AgentServerError (504), and the agent goes on. Raises
        AgentServerError (504) also if the agent does not start to work on the message.
        """
        progress, conversation, shown = self._progress, self.conversation, set[str]()
        if progress.waits:
            for action in conversation._opened():
                shown.add(action.id)
                yield action
        if progress.is_over:
            return
        progress.last = conversation.count()
        if self.seq >= progress.last and not progress.works and not self._goes_on():
            return
        with contextlib.closing(conversation.events(self.seq, seconds=seconds)) as entries:
            for entry in entries:
                if progress.is_over and entry.kind != REJECTION:
                    return
                self.seq = self.seq if entry.seq is None else entry.seq
                self.entries.append(entry)
                asks = not progress.is_over and progress.take(entry)
                yield entry
                if progress.is_over:
                    if not progress.is_rejected or not self._trails(0.0 if entry.kind == REJECTION else _TRAIL):
                        return
                    continue
                for action in conversation._opened() if asks else ():
                    if action.id not in shown:
                        shown.add(action.id)
                        yield action
                if not progress.works and self.seq >= progress.last and not self._goes_on():
                    return

    def wait(self, decide: Callable[["PendingAction"], object] | None = None, *, seconds: float = inf) -> Self:
        """Wait until the agent stops, and return this turn.

        decide: called with each waiting action; it approves it, rejects it, or leaves it to others. Without `decide`,
        `wait` also returns if an action waits: then `status` is `waiting_for_confirmation`, and after the decision
        another `wait` goes on. seconds: as in `follow`.
        """
        with contextlib.closing(self.follow(seconds=seconds)) as found:
            for one in found:
                if isinstance(one, PendingAction):
                    if decide is None:
                        return self
                    decide(one)
        return self

    def pending_actions(self) -> list["PendingAction"]:
        """Return the actions that wait for a decision now."""
        return self.conversation.pending_actions()

    def _trails(self, seconds: float) -> bool:
        """Return whether the log has more: the rejections that ended a run come after its status."""
        tries = Tries(seconds)
        while self.conversation.count() <= self.seq:
            if tries.are_over:
                return False
            time.sleep(_POLL)
        return True

    def _goes_on(self) -> bool:
        """Return whether an agent goes on although the log shows no work. It has some time to begin."""
        progress = self._progress
        tries = Tries(progress.patience if self.seq else BEGINS)  # an empty log belongs to a start in progress
        while True:
            status = (self.conversation.info())["execution_status"]
            if status not in STOPPED:
                progress.works = True
                return True
            if self.conversation.count() > self.seq:
                return True
            if tries.are_over:
                break
            time.sleep(_POLL)
        progress.status, progress.is_over = status, True
        if self.message is not None:
            words = f"The agent is {status} and does not work on the message. Call conversation.run() to start it"
            raise AgentServerError(504, words)
        return False


class Conversation:
    """A conversation."""

    def __init__(self, client: Client, conversation_id: str) -> None:
        self.client = client
        self.id = conversation_id  #: a UUID
        self.files = Files(self)  #: the files of its sandbox
        self.turn: Turn | None = None  #: the last turn that this object began, by start, send or run
        self.listed: ListedConversation | None = None  #: as in the list of `Client.conversations`
        self._path = f"/api/conversations/{conversation_id}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @property
    def url(self) -> str:
        """The address of its page in the console."""
        return f"{self.client.url}/console/#/conversations/{self.id}"

    def info(self) -> ConversationInfo:
        """Return its state."""
        info: ConversationInfo = self.client.get(self._path)
        return info

    def status(self) -> str:
        """Return its current status: idle, running, waiting_for_confirmation, paused, finished, error or stuck."""
        return (self.info()).execution_status

    def sandbox(self) -> Sandbox:
        """Return its sandbox. Raises AgentServerError (404) if it has none."""
        [conversation] = self.client.get("/api/v1/app-conversations", ids=self.id)
        if conversation is None:
            self.info()  # raises for an unknown conversation
            raise AgentServerError(404, "The conversation has no sandbox. Only `start` gives it one. Start another")
        return Sandbox(self.client, conversation["sandbox_id"])

    def send(self, text: str, *, run: bool = True, rejects: bool = True) -> Turn:
        """Send a user's message, and return its turn, to follow or wait for. run: whether the agent starts to run.

        A running agent gets the message in its current run. rejects: whether the message rejects the waiting actions.
        If not, and an action waits, AgentServerError (409) is raised and nothing is sent.
        """
        turn = Turn(self, self.count(), text)  # count first: events may precede the response
        message = {"content": [{"type": "text", "text": text}], "run": run, "rejects": rejects}
        self.client.post(f"{self._path}/events", message)
        self.turn = turn
        return turn

    def run(self) -> Turn:
        """Let the agent go on, and return the new turn.

        Raises AgentServerError (409) if an action waits, because the run would approve it.
        """
        turn = Turn(self, self.count())
        self.client.post(f"{self._path}/run?accepts=false")
        self.turn = turn
        return turn

    def fork(self, event_id: str | None = None, *, title: str | None = None) -> "Conversation":
        """Copy it up to an event, or to its end, and return the new conversation.

        A fork of a bundled agent's conversation has its own sandbox, with the files as they were at the event. Raises
        AgentServerError (409) if they were not recorded then; `records` has the recorded events.
        """
        made = self.client.post(f"{self._path}/fork", _given({"from_event_id": event_id, "title": title}))
        return Conversation(self.client, made["id"])

    def back(self, event_id: str | None = None) -> Return:
        """Return to an event in the same sandbox, and restore the files. event_id: None undoes the last return.

        Later events stay in the log, left behind. Raises AgentServerError (409) if the agent runs, if an action waits,
        and if the files were not recorded; `records` has the recorded events.
        """
        body = {"event_id": event_id, "undo": event_id is None}
        made: Return = self.client.post(f"/api/v1/app-conversations/{self.id}/return", body)
        return made

    def records(self) -> FolderRecords:
        """Return the records of its folder, the oldest first. At all `event_ids` of a record the folder was equal."""
        found: FolderRecords = self.client.get(f"/api/v1/app-conversations/{self.id}/records")
        return found

    def pause(self) -> None:
        """Ask the agent to stop after its current step."""
        self.client.post(f"{self._path}/pause")

    def interrupt(self) -> None:
        """Ask the agent to stop at once."""
        self.client.post(f"{self._path}/interrupt")

    def set_policy(self, kind: str, **members: Any) -> None:
        """Set which actions wait: NeverConfirm, AlwaysConfirm, or ConfirmRisky with `threshold`."""
        self.client.post(f"{self._path}/confirmation_policy", {"policy": {"kind": kind, **members}})

    def set_mode(self, name: str) -> None:
        """Set the approval mode, from the next action on: a name of the client's `modes`.

        Raises AgentServerError (409) if the mode is impossible, such as `nothing` outside of a sandbox.
        """
        self.client.post(f"/api/v1/conversation/{self.id}/approval-mode", {"mode": name})

    def search(self, **filters: Any) -> Iterator[Event]:
        """Yield the events that pass the filters (kind, source, body, timestamp__gte, timestamp__lt), by time."""
        return self.client.pages(f"{self._path}/events/search", **filters, limit=_PAGE)

    def count(self, **filters: Any) -> int:
        """Return the number of events that pass the filters of `search`."""
        number: int = self.client.get(f"{self._path}/events/count", **filters)
        return number

    def events(self, after: int = 0, *, seconds: float = inf) -> Generator[Entry, None]:
        """Follow the log after a seq: each event once, also across restarts of the server.

        It is endless; `follow` ends with the agent's run. seconds: maximum time to follow; then raises AgentServerError
        (504).
        """
        for sent in self.client.stream(f"{self._path}/events/stream", str(after), seconds=seconds):
            yield Entry(int(sent.id) if sent.id else None, json.loads(sent.data))

    def log(self, after: int = 0) -> Iterator[Entry]:
        """Yield the current log after a seq."""
        last = self.count()
        if last <= after:
            return
        with contextlib.closing(self.events(after)) as entries:
            for entry in entries:
                yield entry
                if entry.seq is not None and entry.seq >= last:
                    return

    def decisions(self, action_ids: Sequence[str]) -> dict[str, ActionDecision]:
        """Return who decided these actions, how and when, by id. Undecided actions are omitted."""
        found: dict[str, ActionDecision] = {}
        for first in range(0, len(action_ids), _DECISIONS):
            ids = action_ids[first : first + _DECISIONS]
            path = f"/api/v1/conversation/{self.id}/decisions"
            decided = self.client.get(path, action_id=list(ids))
            found |= {one: decision for one, decision in zip(ids, decided, strict=True) if decision is not None}
        return found

    def follow(self, after: int | None = None, *, seconds: float = inf) -> Generator["Entry | PendingAction", None]:
        """Follow a run until the agent stops: the entries of the log, and each action that waits for a decision once.

        It begins with the last message that this object sent, by `start`, `send` or `run`. For a conversation opened by
        its id it begins with the first entry, and ends after the last one if the agent does not work. after: begin
        after this seq. seconds: as in `Turn.follow`.
        """
        turn = Turn(self, after or 0) if after is not None or self.turn is None else self.turn
        turn._begin()
        with contextlib.closing(turn.follow(seconds=seconds)) as found:
            for one in found:
                yield one

    def wait(self, decide: Callable[["PendingAction"], object] | None = None, *, seconds: float = inf) -> Turn:
        """Wait until the agent stops, like `Turn.wait`, and return the turn of the last message."""
        return (self.turn or Turn(self, 0)).wait(decide, seconds=seconds)

    def _opened(self) -> list["PendingAction"]:
        """Return its waiting actions, once the inbox has them: it lags a moment behind the log."""
        tries = Tries(_BEHIND)
        while not tries.are_over:
            if actions := self.pending_actions():
                return actions
            if (self.info())["execution_status"] != "waiting_for_confirmation":
                break
            time.sleep(_POLL)
        return []

    def waiting(self) -> list["PendingAction | Destination"]:
        """Return all that waits for a decision: actions, and the destinations and budgets that its sandbox asks for."""
        found = self.client.get(f"/api/v1/conversation/{self.id}/waiting")
        actions = [PendingAction(self.client, item) for item in found["actions"]]
        return [*actions, *(Destination(self.client, item) for item in found["destinations"])]

    def pending_actions(self) -> list["PendingAction"]:
        """Return its actions that wait for a decision, in the order of the log."""
        return self.client.pending_actions(conversation_id=self.id)

    def decide(self, actions: list["PendingAction"], decision: str, **members: Any) -> DecisionsResult:
        """Decide actions atomically. Each decision is bound to the digest of what was shown.

        decision: approve, reject or edit. members: `reason`, `arguments` or `always`.
        Raises AgentServerError (409) with `problems` if somebody else decided or an action has changed.
        """
        decisions = [{"action_id": one.id, "decision": decision, "digest": one.digest, **members} for one in actions]
        path = f"/api/v1/conversation/{self.id}/pending-actions/decisions"
        result: DecisionsResult = self.client.post(path, {"decisions": decisions})
        return result

    def changes(
        self, path: str = ".", *, since: str | int | None = None, until: str | int | None = None
    ) -> list[GitChange]:
        """Return the changed files of the repository at a path. With `since`: of the folder, which needs no repository.

        since, until: before the event of a seq or an id. since: also "start" of the conversation. until: None: now.
        Raises AgentServerError if the agent has no Git, and if the folder was not recorded.
        """
        at = f"/api/v1/app-conversations/{self.id}/git/changes"
        changes: list[GitChange] = self.client.get(at, path=path, since=since, until=until)
        return changes

    def diff(self, path: str, *, since: str | int | None = None, until: str | int | None = None) -> GitDiff:
        """Return a changed file as it is and as it was. since, until: as in `changes`."""
        at = f"/api/v1/app-conversations/{self.id}/git/diff"
        diff: GitDiff = self.client.get(at, path=path, since=since, until=until)
        return diff

    def remote(self, path: str | None = None) -> Remote:
        """Return where its folder's work can be pushed. Raises AgentServerError (409) with the reason if it cannot."""
        found: Remote = self.client.get(f"/api/v1/app-conversations/{self.id}/git/remote", path=path)
        return found

    def push(self, branch: str, title: str, **members: Any) -> Push:
        """Push the changes of its folder as a branch. members: description, path, url, base, pull_request."""
        body = {"branch": branch, "title": title, **members}
        made: Push = self.client.post(f"/api/v1/app-conversations/{self.id}/git/push", body)
        return made

    def execute(self, command: str, *, cwd: str | None = None, seconds: int = 600) -> Generator[Output, None]:
        """Run a shell command in the sandbox, as the agent's user and without approval. cwd defaults to its folder.

        Stop reading to stop the command. Raises AgentServerError if the agent serves no commands.
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
            raise AgentServerError(
                504, f"The command has not ended within {seconds} s, and was stopped. Allow it more seconds"
            )
        finally:
            if not has_ended:
                with contextlib.suppress(AgentServerError):
                    self.client.post(f"{self._path}/bash/bash_commands/{begun['id']}/stop", again=False)

    def shell(self, command: str, *, cwd: str | None = None, seconds: int = 600) -> Output:
        """Run a shell command in the sandbox to its end, and return its whole output. Raises as `execute` does."""
        pieces = [piece for piece in self.execute(command, cwd=cwd, seconds=seconds)]
        stdout, stderr = "".join(one.stdout for one in pieces), "".join(one.stderr for one in pieces)
        return Output(stdout, stderr, pieces[-1].exit_code)

    def preview(self, port: int) -> PreviewAddress:
        """Return an address of a port in the sandbox. It opens in one browser, once, and expires soon.

        Raises AgentServerError if no program listens there, and unless the key has the scopes write and approve.
        """
        path = f"/api/v1/sandboxes/{(self.sandbox()).id}/previews"
        address: PreviewAddress = self.client.post(path, {"port": port}, again=False)
        return address

    def delete(self) -> None:
        """Delete the conversation, and its sandbox unless another conversation uses it."""
        try:
            self.client.request("DELETE", f"/api/v1/app-conversations/{self.id}")
        except AgentServerError as error:
            if error.status != 404:
                raise
            self.client.request("DELETE", self._path)  # it has no sandbox


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece
