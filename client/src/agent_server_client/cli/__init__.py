"""`agentctl`, the command line."""

import io
import sys
from typing import NoReturn

import click

from agent_server_client.cli import (
    audit,
    chat,
    conversations,
    decisions,
    devices,
    folders,
    grants,
    hooks,
    modes,
    rules,
    server,
)
from agent_server_client.cli.program import INTERRUPTED, agentctl, closed

for _module in (audit, chat, conversations, decisions, devices, folders, grants, hooks, modes, rules, server):
    for _command in _module.COMMANDS:
        agentctl.add_command(_command)


def main() -> NoReturn:
    """Run the command of this process's arguments, and exit with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # an encoding without a character ends no command
        sys.stdout.reconfigure(errors="replace")
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        return agentctl.main(prog_name="agentctl", standalone_mode=False) or 0
    except BrokenPipeError:
        return closed()
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
