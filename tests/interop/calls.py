"""Every public call of the SDK's RemoteWorkspace, before and beside a conversation, and of its RemoteConversation.

    .venv-openhands/bin/python tests/interop/calls.py calls URL KEY
    .venv-openhands/bin/python tests/interop/calls.py asks URL KEY NAME CALLS

Prints one JSON object per call: `step` names it, `error` is what it raised, or what a result says that failed; null: it
did what it should. LLM_BASE_URL names the scripted model. A workspace's `get_llm` is left out: it asks for a secret in
plain text, which this server gives to nobody. So are pause and resume of a workspace, which the SDK itself refuses.
`asks` is another scenario: a workspace runs CALLS commands, and prints what each `said`: the NAME, its number, by whom.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openhands.sdk import RemoteConversation
from openhands.sdk.conversation.impl.remote_conversation import RemoteState
from openhands.sdk.security.confirmation_policy import AlwaysConfirm, NeverConfirm
from openhands.sdk.security.llm_analyzer import LLMSecurityAnalyzer

from client import SCENARIO, WORDS, run, started, tell, workspace

#: what a conversation's state tells
MEMBERS = [name for name, member in vars(RemoteState).items() if isinstance(member, property)]


def attempt(name: str, call: Callable[[], Any]) -> Any:
    """Make a call, and tell how it went."""
    try:
        found = call()
    except Exception as error:
        tell(name, error=f"{type(error).__name__}: {error}"[:300])
        return None
    failed = getattr(found, "success", None) is False or getattr(found, "exit_code", 0) not in (0, None)
    tell(name, error=str(found)[:300] if failed else None)
    return found


def of_workspace(when: str, place: Any) -> None:
    """The calls of a workspace, whose names begin with when they are made."""
    with tempfile.TemporaryDirectory() as folder:
        there, back, root = Path(folder, "there.txt"), Path(folder, "back.txt"), place.working_dir
        there.write_text("a line\n")
        make = (
            "git init -q . && git config user.email a@b.c && git config user.name a && git commit -q --allow-empty -m a"
        )
        calls: dict[str, Callable[[], Any]] = {
            "alive": lambda: place.alive,
            "get_server_info": place.get_server_info,
            # The first one may have to wait for the start of a sandbox.
            "execute_command": lambda: place.execute_command("echo hello", timeout=180),
            "file_upload": lambda: place.file_upload(there, f"{root}/there.txt"),
            "file_download": lambda: place.file_download(f"{root}/there.txt", back),
            "execute_command in a folder": lambda: place.execute_command("cat there.txt", cwd=root, timeout=30),
            "a repository": lambda: place.execute_command(make, cwd=root, timeout=30),
            "git_changes": lambda: place.git_changes(root),
            "git_diff": lambda: place.git_diff(f"{root}/there.txt"),
            "start_command": lambda: place.start_command("sleep 60"),
            "get_secrets": place.get_secrets,
            "get_mcp_config": place.get_mcp_config,
            "clone_repos": lambda: place.clone_repos([]),
            "get_repos_context": lambda: place.get_repos_context({}),
            "load_skills_from_agent_server": place.load_skills_from_agent_server,
            "default_conversation_tags": lambda: place.default_conversation_tags,
        }
        found = {name: attempt(f"{when}: {name}", call) for name, call in calls.items()}
        if begun := found["start_command"]:
            attempt(f"{when}: get_command_output", lambda: place.get_command_output(begun))
            attempt(f"{when}: stop_command", lambda: place.stop_command(begun))


def of_conversation(conversation: RemoteConversation) -> None:
    state, proposed = conversation.state, "run: echo proposed"
    attempt("set_confirmation_policy", lambda: conversation.set_confirmation_policy(AlwaysConfirm()))
    attempt("send_message", lambda: conversation.send_message(proposed))
    attempt("run", lambda: run(conversation))
    attempt("reject_pending_actions", lambda: conversation.reject_pending_actions("not now"))
    conversation.set_confirmation_policy(NeverConfirm())
    attempt("set_security_analyzer", lambda: conversation.set_security_analyzer(LLMSecurityAnalyzer()))
    attempt("set_security_analyzer to none", lambda: conversation.set_security_analyzer(None))
    attempt("update_secrets", lambda: conversation.update_secrets({"TOKEN": "sesame-opens-it"}))
    attempt("send_message and run", lambda: (conversation.send_message("run: echo done"), run(conversation)))
    attempt("set_title", lambda: conversation.set_title("A title"))
    attempt("generate_title", conversation.generate_title)
    attempt("ask_agent", lambda: conversation.ask_agent("why?"))
    attempt("conversation_stats", lambda: conversation.conversation_stats)
    for name in MEMBERS:
        attempt(f"state.{name}", lambda name=name: getattr(state, name))
    attempt("state.refresh_from_server", state.refresh_from_server)
    attempt("state.model_dump", state.model_dump)
    attempt("events", lambda: [one.id for one in state.events])
    attempt("events.reconcile", state.events.reconcile)
    attempt("fork", lambda: conversation.fork().close())
    attempt("navigate_to", lambda: conversation.navigate_to(state.events[0].id))
    attempt("condense", conversation.condense)
    attempt("pause", conversation.pause)
    attempt("interrupt", conversation.interrupt)
    attempt("attach", lambda: RemoteConversation.attach(workspace(), conversation.id, visualizer=None).close())


def asks(name: str, calls: int) -> None:
    """Run a command so many times; its parent is the agent server, so each tells by whom it was run."""
    place = workspace()
    said = [place.execute_command(f"echo {name} {number} $PPID", timeout=180).stdout for number in range(calls)]
    tell("asked", said=[line.split() for line in said])


if __name__ == "__main__":
    if SCENARIO == "asks":
        asks(WORDS[0], int(WORDS[1]))
        sys.exit()
    alone = workspace()
    of_workspace("before", alone)
    attempt("reset_client", alone.reset_client)
    begun = attempt("create", lambda: started(delete=True))
    of_workspace("beside", begun.workspace)
    of_conversation(begun)
    attempt("close", begun.close)
