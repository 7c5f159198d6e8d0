"""Programs for operators:  python -m admin COMMAND …  The option --help describes each.

A program is only imported when it is used, because `mcp` needs a package that the others do not.
"""

import sys
from importlib import import_module

from core.program import run

#: Command → its module, and its description.
COMMANDS = {
    "agent": ("admin.agent", "install a published agent beside the server"),
    "backup": ("admin.backup", "write all data of the server to a file"),
    "cold": ("admin.cold", "verify the objects of cold conversations"),
    "audit": ("admin.audit", "verify an export of the audit"),
    "conversations": ("admin.conversations", "export and import conversations"),
    "keys": ("admin.keys", "make, list and revoke API keys"),
    "mcp": ("admin.mcp_server", "serve conversations and pending actions to an assistant by MCP"),
    "restore": ("admin.restore", "fill a new DATA_DIR from the file of a backup"),
    "migrate": ("admin.migrate", "bring the stored data to the version of this code"),
}


def main() -> int:
    """Run a command, and return its exit status; 2 if it is unknown."""
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
