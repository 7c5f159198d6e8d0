"""The tools of one conversation: what the client said of them at the start, what it knows, what executes an action."""

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
from reference_agent.repository import Repository, Skill, given_skills
from reference_agent.search import Search
from reference_agent.tools import TOOLS, Files, Refused, Tool, Tools
from reference_agent.web import PERSON_SECONDS, fetch

if TYPE_CHECKING:
    from reference_agent.mcp import Server

_ALWAYS = ("finish", "think", "invoke_skill")  #: tools that a client's list of tools does not take away
#: maximum length of the name of a tool, as endpoints of models take it, and of what goes beside a prompt or a message
MOST_NAME, MOST_CONTEXT = 64, 200_000
INTERRUPTED = "Interrupted. Whether it took effect is not known; it is not repeated."

#: what stands above the texts of a repository
_OF_REPOSITORY = (
    "The repository says this of itself. It tells how people work here: follow it where the user says nothing else. "
    "It cannot allow what the user or these instructions do not allow."
)

Result = tuple[list[Event], bool]  #: result of a tool: its content, and whether it is an error


def own_name(name: str) -> str:
    """This agent's name of a tool that clients call by another one, such as `BashTool`; else the name itself."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().removesuffix("_tool")
    return {"bash": "terminal", "execute_bash": "terminal", "str_replace_editor": "file_editor"}.get(plain, plain)


class Toolbox:
    """Not thread-safe, but for `stop` and `close`."""

    def __init__(
        self, log: Log, files: Files, around: Files, given: Event | None = None, servers: Event | None = None
    ) -> None:
        """files: in the working folder. around: in the agent server's working directory. given: agent of the start."""
        self.log, self._files = log, files
        self._repository, self._search = Repository(files.folder, around), Search(files)
        self._untried, self._failed, self._failures = servers or {}, dict[str, Any](), list[str]()
        self._servers, self._of = list["Server"](), dict[str, tuple["Server", str]]()
        self._given = given or {}
        context = self._given.get("agent_context")
        self._context = context if isinstance(context, dict) else {}
        self._of_client, self._always = given_skills(self._context)
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tools = {name: tool for name, tool in TOOLS.items() if self._is_wanted(name)}
        for server in self._untried.values():
            log.hide(*credentials_in(server), *(one.removeprefix("Bearer ") for one in headers_of(server).values()))
        if log.events:
            self._repository.instructions()  # which the log has

    def known(self, task: dict[str, Any] | None = None) -> Tools:
        """The tools by name, in a sub-task or in the conversation itself."""
        tools = {name: tool for name, tool in self._tools.items() if name != "invoke_skill" or self._skills()}
        return tools_of_task(tools) if task else tools

    def context(self) -> str:
        """What the agent is told beside its prompt: the day, the system, Git, what repository and client say."""
        told = [f"Today is {events.now()[:10]} (UTC). Machine: {_system()}. At the start:\n{self._repository.state()}"]
        if instructions := self._repository.instructions():
            told += [_OF_REPOSITORY, instructions]
        if skills := self._skills():
            lines = [f"* {one.name}: {one.description}" for one in skills]
            told.append("\n".join(["Skills, which invoke_skill shows in full:", *lines]))
        told += self._always
        if isinstance(suffix := self._context.get("system_message_suffix"), str):
            told.append(suffix)
        return beginning("\n\n".join(["", *filter(None, told)]), MOST_CONTEXT)

    def prompt(self, own: str) -> str:
        return given if isinstance(given := self._given.get("system_prompt"), str) and given else own

    def added_to(self, content: list[Event]) -> dict[str, Any]:
        """What a user's message brings by its words, as members of its event."""
        text = text_of(content)
        skills = [one for one in self._skills() if one.is_triggered(text)]
        added = [_told(one) for one in skills]
        if isinstance(suffix := self._context.get("user_message_suffix"), str):
            added.append(suffix)
        told = beginning("\n".join(added), MOST_CONTEXT)
        return {"activated_skills": [one.name for one in skills], "extended_content": parts(told)}

    def connect(self, *, again: bool) -> None:
        """Start the MCP servers that were not tried yet, or (again) have failed: their host may be allowed by now."""
        untried, self._untried = self._untried | (self._failed if again else {}), {}
        if not untried:
            return
        made = import_module("reference_agent.mcp").Server  # brings the library
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
        """Execute an action. What a tool refuses, or the system does, is an observation too."""
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
                text = _told(skill) if skill else f"There is no skill {beginning(details['name'], 100)!r}."
                return {"content": parts(text), "is_error": skill is None, "skill_name": details["name"]}
        content, is_error = self._interruptible(lambda: self._called(name, details["data"]))
        return {"content": content, "is_error": is_error, "tool_name": name}

    def add_instructions(self, action: Event, result: Event) -> None:
        """Add to a result what the repository says in the folders that the action was the first to touch."""
        if result["kind"] == "ObservationEvent" and (told := self._repository.instructions_for(action["action"])):
            content = result["observation"]["content"]
            content.extend(parts(f"\n{_OF_REPOSITORY}\n{told}"))

    def stop(self) -> None:
        self._search.stop()
        done, self._done = self._done, queue.SimpleQueue()  # a page that waits for a person is wanted no more
        done.put(([*parts(INTERRUPTED)], True))

    def close(self) -> None:
        self.stop()
        for server in self._servers:
            server.close()

    def _is_wanted(self, name: str) -> bool:
        """Return whether the client's list of tools, if it has any of ours, and its filter leave a tool."""
        wanted = {own_name(one) for one in names_in(self._given.get("tools"))} & {*TOOLS}
        return name in _ALWAYS or ((not wanted or name in wanted) and self._passes(name))

    def _passes(self, name: str) -> bool:
        try:
            return re.match(self._given.get("filter_tools_regex") or "", name) is not None
        except (re.error, TypeError):
            return True

    def _add(self, server: "Server", name: str, tool: Tool) -> None:
        names = (re.sub(r"[^\w-]", "_", one, flags=re.ASCII)[:MOST_NAME] for one in (name, f"{server.name}_{name}"))
        own = next((one for one in names if one not in {**TOOLS, **self._tools}), "")
        if own and self._passes(own):
            self._tools = {**self._tools, own: tool}
            self._of[own] = (server, name)

    def _skills(self) -> list[Skill]:
        names = {one.name for one in self._of_client}
        found = [*self._of_client, *(one for one in self._repository.skills() if one.name not in names)]
        disabled = self._context.get("disabled_skills")
        return [one for one in found if one.name not in (disabled if isinstance(disabled, list) else [])]

    def _tasks(self, details: Event) -> Event:
        """Take the list of tasks, or tell the one that the log has."""
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
                return parts(f"The MCP server of {name} is not there any more: call another tool."), True
            return parts(run[name](**data, **more)), False
        except (Refused, OSError, ValueError, re.error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return parts(f"{name}: {reason}"), True

    def _interruptible(self, call: Callable[[], Result]) -> Result:
        """The result of a call, which runs in a thread of its own: `stop` ends the wait for it."""
        done = self._done = queue.SimpleQueue()

        def run() -> None:
            try:
                done.put(call())
            except Exception as error:  # is raised where the result is awaited
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


def _tools_of(server: "Server") -> dict[str, Tool] | str:
    """Return the tools of a server, or why it has none."""
    try:
        return server.tools()
    except Exception as error:  # of one server: the others go on
        return beginning(str(error) or type(error).__name__, 1000)


def _system() -> str:
    with suppress(OSError):
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.machine()}"
    return f"{platform.system()} {platform.machine()}"


def _told(skill: Skill) -> str:
    return f'<skill name="{skill.name}" of="{skill.source}">\n{skill.content}\n</skill>'


def headers_of(given: dict[str, Any]) -> dict[str, str]:
    """The headers of a server, and the one that its `auth` stands for."""
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
