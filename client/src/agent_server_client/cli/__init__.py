"""`agentctl`, the command line."""

from agent_server_client.cli import conversations, decisions, folders, server
from agent_server_client.cli.program import agentctl

for _module in (conversations, decisions, folders, server):
    for _command in _module.COMMANDS:
        agentctl.add_command(_command)


def main() -> None:
    """Run the command of this process's arguments."""
    agentctl(prog_name="agentctl")
