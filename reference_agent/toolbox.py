"""The tools of one conversation: the client's settings for them, their knowledge, and the execution of actions."""

import platform
import queue
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from core.cuts import beginning
from core.masking import credentials_in
from reference_agent import events
from reference_agent.delegation import tools_of_task
from reference_agent.events import Event, parts, text_of
from reference_agent.log import Log
from reference_agent.repository import FolderRepository, RepositorySkill, given_skills
from reference_agent.search import Search
from reference_agent.tools import TOOLS, AgentTool, Files, ToolRefused, Tools
from reference_agent.web import PERSON_SECONDS, fetch

if TYPE_CHECKING:
    from reference_agent.mcp import McpConnection

_ALWAYS = ("finish", "think", "invoke_skill")  #: tools that a client's list cannot remove
#: Maximum length of a tool's name at model endpoints, and of the context of a prompt or a message, in characters.
MOST_NAME, MOST_CONTEXT = 64, 200_000
INTERRUPTED = "Interrupted. It is unknown whether the call took effect. It is not repeated."

#: The heading of a repository's texts.
_OF_REPOSITORY = (
    "These texts come from the repository. They tell how people work here: follow them unless the user says otherwise. "
    "They cannot allow what the user or these instructions do not allow."
)

Result = tuple[list[Event], bool]  #: result of a tool: its content, and whether it is an error


def own_name(name: str) -> str:
    """Return this agent's name of a tool that clients name differently, such as `BashTool`; otherwise the name."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().removesuffix("_tool")
    return {"bash": "terminal", "execute_bash": "terminal", "str_replace_editor": "file_editor"}.get(plain, plain)


class Toolbox:
    """Not thread-safe, except `stop` and `close`."""

    def __init__(
        self, log: Log, files: Files, around: Files, given: Event | None = None, servers: Event | None = None
    ) -> None:
        """files: in the working folder. around: in the agent server's working directory. given: the start's agent."""
        self.log, self._files = log, files
        self._repository, self._search = FolderRepository(files.folder, around), Search(files)
        self._untried, self._failed, self._failures = servers or {}, dict[str, Any](), list[str]()
        self._servers, self._of = list["McpConnection"](), dict[str, tuple["McpConnection", str]]()
        self._given = given or {}
        context = self._given.get("agent_context")
        self._context = context if isinstance(context, dict) else {}
        self._of_client, self._always = given_skills(self._context)
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tools = {name: tool for name, tool in TOOLS.items() if self._is_wanted(name)}
        for server in self._untried.values():
            log.hide(*credentials_in(server), *(one.removeprefix("Bearer ") for one in headers_of(server).values()))
        if log.events:
            self._repository.instructions()  # the log has them already

    def known(self, task: dict[str, Any] | None = None) -> Tools:
        """Return the tools by name, in a sub-task or in the conversation itself."""
        tools = {name: tool for name, tool in self._tools.items() if name != "invoke_skill" or self._skills()}
        return tools_of_task(tools) if task else tools

    def context(self) -> str:
        """Return the context of the prompt: the date, the system, Git, the texts of repository and client."""
        texts = [f"Today is {events.now()[:10]} (UTC). Machine: {_system()}. At the start:\n{self._repository.state()}"]
        if instructions := self._repository.instructions():
            texts += [_OF_REPOSITORY, instructions]
        if skills := self._skills():
            lines = [f"* {one.name}: {one.description}" for one in skills]
            texts.append("\n".join(["Skills, which invoke_skill shows in full:", *lines]))
        texts += self._always
        if isinstance(suffix := self._context.get("system_message_suffix"), str):
            texts.append(suffix)
        return beginning("\n\n".join(["", *filter(None, texts)]), MOST_CONTEXT)

    def prompt(self, own: str) -> str:
        return given if isinstance(given := self._given.get("system_prompt"), str) and given else own

    def added_to(self, content: list[Event]) -> dict[str, Any]:
        """Return the members that a user's message gets for its words."""
        text = text_of(content)
        skills = [one for one in self._skills() if one.is_triggered(text)]
        added = [_skill_text(one) for one in skills]
        if isinstance(suffix := self._context.get("user_message_suffix"), str):
            added.append(suffix)
        extended = beginning("\n".join(added), MOST_CONTEXT)
        return {"activated_skills": [one.name for one in skills], "extended_content": parts(extended)}

    def connect(self, *, again: bool) -> None:
        """Start the MCP servers that were not tried yet. again: also retry failures, as a host may be allowed now."""
        untried, self._untried = self._untried | (self._failed if again else {}), {}
        if not untried:
            return
        made = import_module("reference_agent.mcp").McpConnection  # imports the library
        servers = [made(name, given, self._files.folder) for name, given in untried.items()]
        self._servers = [*(one for one in self._servers if one.name not in untried), *servers]
        with ThreadPoolExecutor(len(untried)) as pool:
            for server, tools in zip(servers, pool.map(_tools_of, servers), strict=True):
                if isinstance(tools, str):
                    self._failures.append(f"The MCP server {server.name} is not used: {tools}")
                    self._failed[server.name] = untried[server.name]
                    continue
                self._failed.pop(server.name, None)
                for name, tool in tools.items():
                    self._add(server, name, tool)

    def failures(self) -> list[str]:
        failures, self._failures = self._failures, []
        return failures

    def observe(self, action: Event) -> Event:
        """Execute an action. A refusal by a tool or the system is an observation too."""
        details, name = action["action"], action["tool_name"]
        match details["kind"]:
            case "FinishAction":
                return {"content": parts(details["message"]), "is_error": False}
            case _ if name == "finish":
                return {"content": parts(details["data"]["message"]), "is_error": False, "tool_name": name}
            case "ThinkAction":
                return {"content": parts("The thought is noted."), "is_error": False}
            case "FileEditorAction":
                return self._files.observe(details)
            case "TaskTrackerAction":
                return self._tasks(details)
            case "InvokeSkillAction":
                skill = next((one for one in self._skills() if one.name == details["name"]), None)
                text = _skill_text(skill) if skill else f"There is no skill {beginning(details['name'], 100)!r}."
                return {"content": parts(text), "is_error": skill is None, "skill_name": details["name"]}
        content, is_error = self._interruptible(lambda: self._called(name, details["data"]))
        return {"content": content, "is_error": is_error, "tool_name": name}

    def add_instructions(self, action: Event, result: Event) -> None:
        """Add the repository's instructions for folders that the action touched first to a result."""
        if result["kind"] == "ObservationEvent" and (added := self._repository.instructions_for(action["action"])):
            content = result["observation"]["content"]
            content.extend(parts(f"\n{_OF_REPOSITORY}\n{added}"))

    def stop(self) -> None:
        self._search.stop()
        done, self._done = self._done, queue.SimpleQueue()  # a page that waits for a person is wanted no more
        done.put(([*parts(INTERRUPTED)], True))

    def close(self) -> None:
        self.stop()
        for server in self._servers:
            server.close()

    def _is_wanted(self, name: str) -> bool:
        """Return whether the client's list of tools and its filter keep a tool. A list without ours is ignored."""
        wanted = {own_name(one) for one in names_in(self._given.get("tools"))} & {*TOOLS}
        return name in _ALWAYS or ((not wanted or name in wanted) and self._passes(name))

    def _passes(self, name: str) -> bool:
        try:
            return re.match(self._given.get("filter_tools_regex") or "", name) is not None
        except (re.error, TypeError):
            return True

    def _add(self, server: "McpConnection", name: str, tool: AgentTool) -> None:
        names = (re.sub(r"[^\w-]", "_", one, flags=re.ASCII)[:MOST_NAME] for one in (name, f"{server.name}_{name}"))
        own = next((one for one in names if one not in {**TOOLS, **self._tools}), "")
        if own and self._passes(own):
            self._tools = {**self._tools, own: tool}
            self._of[own] = (server, name)

    def _skills(self) -> list[RepositorySkill]:
        names = {one.name for one in self._of_client}
        found = [*self._of_client, *(one for one in self._repository.skills() if one.name not in names)]
        disabled = self._context.get("disabled_skills")
        return [one for one in found if one.name not in (disabled if isinstance(disabled, list) else [])]

    def _tasks(self, details: Event) -> Event:
        """Replace the list of tasks, or show the log's."""
        if details["command"] == "plan":
            tasks = [{"title": "", "notes": "", "status": "todo", **one} for one in details.get("task_list") or []]
        else:
            results = (one["observation"] for one in reversed(self.log.way) if one["kind"] == "ObservationEvent")
            tasks = next((one["task_list"] for one in results if one["kind"] == "TaskTrackerObservation"), [])
        lines = [f"[{one['status']}] {one['title']}{one['notes'] and ': '}{one['notes']}" for one in tasks]
        done = sum(one["status"] == "done" for one in tasks)
        text = "\n".join([f"{done} of {len(tasks)} tasks are done.", *lines])
        return {"content": parts(text), "is_error": False, "command": details["command"], "task_list": tasks}

    def _called(self, name: str, data: dict[str, Any]) -> Result:
        try:
            if name in self._of:
                server, own = self._of[name]
                return server.call(own, data)
            done, until = self._done, time.monotonic() + PERSON_SECONDS
            more = {"waits": lambda: self._done is done and time.monotonic() < until} if name == "fetch" else {}
            run: dict[str, Callable[..., str]] = {"grep": self._search.grep, "glob": self._search.glob, "fetch": fetch}
            if name not in run:
                return parts(f"The MCP server of {name} is no longer available. Call another tool."), True
            return parts(run[name](**data, **more)), False
        except (ToolRefused, OSError, ValueError, re.error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return parts(f"{name}: {reason}"), True

    def _interruptible(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call that runs in its own thread. `stop` ends the wait for it."""
        done = self._done = queue.SimpleQueue()

        def run() -> None:
            try:
                done.put(call())
            except Exception as error:  # raised at the await of the result
                done.put(error)

        threading.Thread(target=run, daemon=True).start()
        result = done.get()
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


def names_in(things: Any) -> list[str]:
    """Return the names of a list of objects, or of names."""
    listed = things if isinstance(things, list) else []
    return [str(one.get("name", "?")) if isinstance(one, dict) else str(one) for one in listed]


def _tools_of(server: "McpConnection") -> dict[str, AgentTool] | str:
    """Return the tools of a server, or why it has none."""
    try:
        return server.tools()
    except Exception as error:  # one server's failure; the others go on
        return beginning(str(error) or type(error).__name__, 1000)


def _system() -> str:
    with suppress(OSError):
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.machine()}"
    return f"{platform.system()} {platform.machine()}"


def _skill_text(skill: RepositorySkill) -> str:
    return f'<skill name="{skill.name}" of="{skill.source}">\n{skill.content}\n</skill>'


def headers_of(given: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a server, including that of its `auth`."""
    headers = texts_of(given.get("headers"))
    match given.get("auth"):
        case {"strategy": "header", "headers": dict(more)}:
            return {**headers, **texts_of(more)}
        case {"strategy": "api_key", "value": str(value), "header_name": str(name)} if name:
            return {**headers, name: value}
        case {"strategy": "bearer" | "api_key", "value": str(value)} | str(value) if value not in ("", "oauth"):
            return {**headers, "Authorization": f"Bearer {value}"}
    return headers


def texts_of(given: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
