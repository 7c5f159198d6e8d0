"""A repository's texts for an agent that works in it: instructions, skills, and the state of Git.

Each text names its file. Source of the names: AGENTS.md (https://agents.md), and the skills of the published agent.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from core.cuts import beginning, beginning_in_bytes
from reference_agent.tools import Files, ToolRefused

#: Files of a folder's instructions. The first existing one is used.
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", ".openhands/microagents/repo.md")
#: Maximum size of a file of instructions or of a skill, and of all instructions of a prompt, in bytes.
MOST_FILE, MOST_INSTRUCTIONS = 24_000, 48_000
#: Folders of a repository's skills. The first of two skills with equal names is used.
SKILLS = (".agents/skills", ".openhands/skills", ".openhands/microagents")
#: Maximum number of skills, characters of a description, and paths of one call that are checked.
MOST_SKILLS, MOST_DESCRIPTION, MOST_PATHS = 100, 300, 50
#: Git's timeout in seconds, number of commits in the prompt, and maximum length of each, in characters.
_GIT_SECONDS, _COMMITS, _MOST_COMMIT = 5, 5, 120


class RepositorySkill(NamedTuple):
    name: str
    description: str
    triggers: tuple[str, ...]  #: words of a message that add it
    content: str
    source: str  #: its file, or its sender

    def is_triggered(self, text: str) -> bool:
        return any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text, re.IGNORECASE) for one in self.triggers)


class FolderRepository:
    """The repository of one conversation's folder, or that folder alone. Not thread-safe."""

    def __init__(self, folder: Path, files: Files) -> None:
        """files: of the agent server's working directory, which limits reads."""
        self._folder, self._files = folder, files
        self._known = set[Path]()  # folders whose instructions the agent has

    def instructions(self) -> str:
        """Return the instructions from the repository's root down to the folder, each marked; "" if there are none."""
        told = "\n".join(text for one in self._within([self._folder]) for text in self._of_folder(one))
        cut = beginning_in_bytes(told, MOST_INSTRUCTIONS)
        return told if cut == told else f"{cut}\n(Cut off here: read the files for the rest.)"

    def instructions_for(self, action: dict[str, Any]) -> str:
        """Return the instructions of folders that an action touches first, each marked; "" if there are none."""
        new = [one for one in self._within(_folders(self._folder, action)) if one not in self._known]
        return "\n".join(text for one in new for text in self._of_folder(one))

    def skills(self) -> list[RepositorySkill]:
        """Return the repository's readable skills."""
        found: dict[str, RepositorySkill] = {}
        for name in SKILLS:
            folder = self._root() / name
            for path in sorted([*folder.glob("*.md"), *folder.glob("*/SKILL.md")])[:MOST_SKILLS]:
                if path.name != "repo.md" and (text := self._read(path)):
                    skill = _skill(path, text)
                    found.setdefault(skill.name, skill)
        return [*found.values()][:MOST_SKILLS]

    def state(self) -> str:
        status = git(self._folder, "status", "--porcelain", "--branch", seconds=_GIT_SECONDS)
        if status is None:
            return f"{self._folder} is in no Git repository."
        branch, *changed = status.splitlines()
        lines = [f"{self._folder} is in a Git repository. Branch: {branch.removeprefix('## ')}."]
        lines.append(f"Files with uncommitted changes: {len(changed)}.")
        if commits := git(self._folder, "log", f"--max-count={_COMMITS}", "--format=%h %s", seconds=_GIT_SECONDS):
            lines += ["Last commits:", *(f"  {beginning(one, _MOST_COMMIT)}" for one in commits.splitlines())]
        return "\n".join(lines)

    def _root(self) -> Path:
        """Return the root of the repository around the folder, below the working directory; otherwise the folder."""
        return next((one for one in self._around(self._folder) if (one / ".git").exists()), self._folder)

    def _around(self, folder: Path) -> Iterator[Path]:
        """Yield a folder and its parents, from the inside out, up to the working directory."""
        while folder.is_relative_to(self._files.folder):
            yield folder
            folder = folder.parent

    def _within(self, folders: Iterable[Path]) -> list[Path]:
        """Return folders of the repository and their parents, from its root down."""
        root = self._root()
        return sorted({one for folder in folders for one in self._around(folder) if one.is_relative_to(root)})

    def _of_folder(self, folder: Path) -> Iterator[str]:
        for name in INSTRUCTIONS:
            if text := self._read(folder / name):
                self._known.add(folder)
                yield f'<instructions of="{folder / name}">\n{text}\n</instructions>'
                return

    def _read(self, path: Path) -> str:
        """Return a file's text, truncated with a notice; "" if it cannot be read."""
        try:
            text = self._files.text(str(path)).strip()
        except (ToolRefused, OSError, ValueError):
            return ""
        cut = beginning_in_bytes(text, MOST_FILE)
        return text if cut == text else f"{cut}\n(Cut off here: {path} has {len(text.encode()):,} bytes.)"


def given_skills(context: dict[str, Any]) -> tuple[list[RepositorySkill], list[str]]:
    """Return the skills of a start request's `agent_context`, and the texts that always apply."""
    skills, always = list[RepositorySkill](), list[str]()
    listed = context.get("skills")
    for one in listed if isinstance(listed, list) else []:
        if not (isinstance(one, dict) and isinstance(one.get("content"), str)):
            continue
        name, trigger = str(one.get("name") or "skill"), one.get("trigger")
        content = beginning_in_bytes(one["content"], MOST_FILE)
        words = (trigger.get("keywords") or trigger.get("triggers")) if isinstance(trigger, dict) else None
        words = words if isinstance(words, list) else []
        if not words and not one.get("is_agentskills_format"):
            always.append(f'<instructions of="the client, {name}">\n{content}\n</instructions>')
        else:
            described = beginning(str(one.get("description") or ""), MOST_DESCRIPTION)
            skills.append(RepositorySkill(name, described, tuple(map(str, words)), content, "the client"))
    return skills[:MOST_SKILLS], always[:MOST_SKILLS]


def run_git(folder: Path, *words: str, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run Git in a folder. A repository around the working directory is ignored. Raises OSError and TimeoutExpired."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(Path.cwd().parent)}
    command = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-optional-locks", *words)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=seconds, check=False)


def git(folder: Path, *words: str, seconds: float, errors: str = "replace") -> str | None:
    """Return Git's output in a folder; None if it fails or cannot run."""
    try:
        run = run_git(folder, *words, seconds=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if run.returncode else run.stdout.decode(errors=errors)


def _skill(path: Path, text: str) -> RepositorySkill:
    head, body = front_matter(text)
    name = head.get("name") or (path.parent.name if path.name == "SKILL.md" else path.stem)
    described = head.get("description") or body.strip().partition("\n")[0].strip("# ")
    words = head.get("triggers", [])
    words = words if isinstance(words, list) else words.split(",")
    triggers = tuple(one.strip() for one in words if one.strip())
    return RepositorySkill(str(name), beginning(str(described), MOST_DESCRIPTION), triggers, body.strip(), str(path))


def front_matter(text: str) -> tuple[dict[str, str | list[str]], str]:
    """Return the texts and lists of a file's front matter, and the rest of the file."""
    head, end, body = text.removeprefix("---\n").partition("\n---")
    if not (text.startswith("---\n") and end):
        return {}, text
    found: dict[str, str | list[str]] = {}
    name = ""
    for line in head.splitlines():
        if item := re.fullmatch(r"\s*-\s+(.*)", line):
            before = found.get(name)
            found[name] = [*(before if isinstance(before, list) else []), _plain(item[1])]
        elif member := re.fullmatch(r"([\w-]+):\s*(.*)", line):
            name, value = member[1], member[2].strip()
            is_list = value.startswith("[") and value.endswith("]")
            found[name] = [_plain(one) for one in value[1:-1].split(",")] if is_list else _plain(value.lstrip(">|"))
        elif isinstance(before := found.get(name), str):
            found[name] = f"{before} {line.strip()}".strip()
    return found, body.partition("\n")[2]


def _plain(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _folders(here: Path, action: dict[str, Any]) -> list[Path]:
    """Return the folders that an action names, by a path or by a word of its command."""
    arguments: Any = action["data"] if isinstance(action.get("data"), dict) else action
    words = [arguments["path"]] if isinstance(arguments.get("path"), str) else []
    if action["kind"] == "TerminalAction":
        try:
            words = shlex.split(action["command"])
        except ValueError:  # an unclosed quote
            words = action["command"].split()
    folders = list[Path]()
    for word in words[:MOST_PATHS]:
        with suppress(OSError, ValueError):
            path = Path(os.path.realpath(here / word))
            folders.append(path if path.is_dir() else path.parent)
    return folders
