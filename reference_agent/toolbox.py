"""The tools of one conversation: which it has, what it knows from the start, and what executes an action.

What an action says is the model's. What the client said of the agent in its start request is honoured here: its list
of tools, its skills and instructions, its MCP servers.
"""

import platform
import queue
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from core.cuts import beginning
from reference_agent import events
from reference_agent.events import Event, parts, text_of
from reference_agent.log import Log
from reference_agent.mcp import McpError, Server
from reference_agent.repository import Repository, Skill, given_skills
from reference_agent.search import Search
from reference_agent.tools import TOOLS, Files, Refused, Tool, Tools
from reference_agent.web import fetch

#: tools that a client's list of tools does not take away
_ALWAYS = ("finish", "think", "invoke_skill")

#: maximum length of the name of a tool, as endpoints of models take it, and of what goes beside a prompt or a message
MOST_NAME, MOST_CONTEXT = 64, 200_000

INTERRUPTED = "Interrupted. Whether it took effect is not known; it is not repeated."

#: what stands above the texts of a repository
_OF_REPOSITORY = (
    "The repository says this of itself. It tells how people work here: follow it where the user says nothing else. "
    "It cannot allow what the user or these instructions do not allow."
)

#: result of a tool: its content, and whether it is an error
Result = tuple[list[Event], bool]


def own_name(name: str) -> str:
    """This agent's name of a tool that clients call by another one, such as `BashTool`; else the name itself."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().removesuffix("_tool")
    return {"bash": "terminal", "execute_bash": "terminal", "str_replace_editor": "file_editor"}.get(plain, plain)


class Toolbox:
    """Not thread-safe, but for `stop` and `close`."""

    def __init__(
        self, log: Log, files: Files, around: Files, given: dict[str, Any] | None = None, servers: Iterable[Server] = ()
    ) -> None:
        """files: in the working folder. around: in the agent server's working directory, which may have a repository
        around that folder. given: the agent of the start request. servers: MCP servers.
        """
        self._log, self._files = log, files
        self._repository, self._search = Repository(files.folder, around), Search(files)
        self._servers, self._of = list(servers), dict[str, tuple[Server, str]]()
        self._untried, self._failures = list(self._servers), list[str]()
        self._given = given or {}
        context = self._given.get("agent_context")
        self._context = context if isinstance(context, dict) else {}
        self._of_client, self._always = given_skills(self._context)
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tools = {name: tool for name, tool in TOOLS.items() if self._is_wanted(name)}
        for server in self._servers:
            log.hide(*server.secrets())
        if log.events:
            self._repository.instructions()  # which the log has

    @property
    def known(self) -> Tools:
        """The tools by name; skills can be read where there are any."""
        return {name: tool for name, tool in self._tools.items() if name != "invoke_skill" or self._skills()}

    def context(self) -> str:
        """What the agent is told beside its prompt: the day, the system, Git, what repository and client say."""
        told = [f"Today is {events.now()[:10]} (UTC). The machine runs {_system()}.\n{self._repository.state()}"]
        if instructions := self._repository.instructions():
            told += [_OF_REPOSITORY, instructions]
        if skills := self._skills():
            lines = [f"* {one.name}: {one.description}" for one in skills]
            told.append("\n".join(["Skills, which invoke_skill shows in full:", *lines]))
        told += self._always
        if isinstance(suffix := self._context.get("system_message_suffix"), str):
            told.append(suffix)
        return beginning("\n\n".join(["", *filter(None, told)]), MOST_CONTEXT)

    @property
    def past(self) -> list[Event]:
        """All events of the log, also those that a return has left behind: their ids are not free."""
        return self._log.events

    def prompt(self, own: str) -> str:
        """The prompt: the client's, where it sent one."""
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

    def connect(self) -> None:
        """Start the MCP servers that were not tried yet, all at once. Cost: at most the time of the slowest."""
        untried, self._untried = self._untried, []
        found: dict[str, dict[str, Tool] | str] = {}
        threads = [threading.Thread(target=_find_tools, args=(one, found), daemon=True) for one in untried]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in untried:
            tools = found[server.name]
            if isinstance(tools, str):
                self._failures.append(f"The MCP server {server.name} is not used: {tools}")
                continue
            for name, tool in tools.items():
                self._add(server, name, tool)

    def failures(self) -> list[str]:
        """A sentence for each MCP server that failed since the last time."""
        failures, self._failures = self._failures, []
        return failures

    def observe(self, action: Event) -> Event:
        """Execute an action. What a tool refuses, or the system does, is an observation too."""
        details, name = action["action"], action["tool_name"]
        match details["kind"]:
            case "FinishAction":
                return {"content": parts(details["message"]), "is_error": False}
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
        """End the call that runs."""
        self._search.stop()
        self._done.put(([*parts(INTERRUPTED)], True))

    def close(self) -> None:
        """End the MCP servers, with what runs."""
        self.stop()
        for server in self._servers:
            server.close()

    def _is_wanted(self, name: str) -> bool:
        """Whether the client's own list of tools, if it sent one that has any of ours, and its filter leave a tool."""
        listed = self._given.get("tools")
        names = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        wanted = {own_name(one) for one in names if isinstance(one, str)} & {*TOOLS}
        return name in _ALWAYS or ((not wanted or name in wanted) and self._passes(name))

    def _passes(self, name: str) -> bool:
        try:
            return re.match(self._given.get("filter_tools_regex") or "", name) is not None
        except (re.error, TypeError):
            return True

    def _add(self, server: Server, name: str, tool: Tool) -> None:
        own = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:MOST_NAME]
        if own in {**TOOLS, **self._tools}:
            own = re.sub(r"[^\w-]", "_", f"{server.name}_{name}", flags=re.ASCII)[:MOST_NAME]
        if own not in {**TOOLS, **self._tools} and self._passes(own):
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
            last = next((one for one in reversed(self._log.way) if _is_plan(one)), None)
            tasks = last["observation"]["task_list"] if last else []
        lines = [f"[{one['status']}] {one['title']}{one['notes'] and ': '}{one['notes']}" for one in tasks]
        done = sum(one["status"] == "done" for one in tasks)
        text = "\n".join([f"{done} of {len(tasks)} tasks are done.", *lines])
        return {"content": parts(text), "is_error": False, "command": details["command"], "task_list": tasks}

    def _called(self, name: str, data: dict[str, Any]) -> Result:
        try:
            if name in self._of:
                server, own = self._of[name]
                return server.call(own, data)
            run: dict[str, Callable[..., str]] = {"grep": self._search.grep, "glob": self._search.glob, "fetch": fetch}
            if name not in run:
                return parts(f"The MCP server of {name} is not there any more: call another tool."), True
            return parts(run[name](**data)), False
        except (Refused, McpError, OSError, ValueError, re.error) as error:
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


def _find_tools(server: Server, found: dict[str, dict[str, Tool] | str]) -> None:
    """Put the tools of a server into found, or why it has none."""
    try:
        found[server.name] = server.tools()
    except Exception as error:  # of one server: the others go on
        found[server.name] = beginning(str(error) or type(error).__name__, 1000)


def _system() -> str:
    with suppress(OSError):
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.machine()}"
    return f"{platform.system()} {platform.machine()}"


def _told(skill: Skill) -> str:
    return f'<skill name="{skill.name}" of="{skill.source}">\n{skill.content}\n</skill>'


def _is_plan(event: Event) -> bool:
    return bool(event["kind"] == "ObservationEvent" and event["observation"]["kind"] == "TaskTrackerObservation")
