"""Programs for operators:  python -m admin COMMAND …  Each says with --help what it does.

A program is imported when it is asked for: `mcp` needs a package that the others do without.
"""

import sys
from importlib import import_module

from core.program import run

#: by command: its module, and what it does
COMMANDS = {
    "agent": ("admin.agent", "install a published agent beside the server"),
    "backup": ("admin.backup", "write everything that the server keeps into one file"),
    "cold": ("admin.cold", "verify the objects of cold conversations"),
    "audit": ("admin.audit", "verify an export of the audit"),
    "conversations": ("admin.conversations", "export and import conversations"),
    "keys": ("admin.keys", "make, list and revoke API keys"),
    "mcp": ("admin.mcp_server", "serve conversations and pending actions to an assistant by MCP"),
    "restore": ("admin.restore", "fill a new DATA_DIR from the file of a backup"),
    "migrate": ("admin.migrate", "bring the stored data to the version of this code"),
}


def main() -> int:
    """Run one command; returns its exit status, 2 where there is no such command."""
    match sys.argv[1:]:
        case [name, *words] if name in COMMANDS:
            status: int = import_module(COMMANDS[name][0]).main(words)
            return status
        case ["-h" | "--help"]:
            print(_usage())
            return 0
    print(_usage(), file=sys.stderr)
    return 2


def _usage() -> str:
    lines = [f"  {name:<15}{purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(["usage: python -m admin COMMAND …", "", *lines])


if __name__ == "__main__":
    run(main)
