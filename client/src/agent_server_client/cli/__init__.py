"""`agentctl`, the command line."""

import io
import sys

from agent_server_client.cli import audit, chat, conversations, decisions, folders, server
from agent_server_client.cli.program import agentctl

for _module in (audit, chat, conversations, decisions, folders, server):
    for _command in _module.COMMANDS:
        agentctl.add_command(_command)


def main() -> None:
    """Run the command of this process's arguments."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # an encoding without a character ends no command
        sys.stdout.reconfigure(errors="replace")
    agentctl(prog_name="agentctl")
