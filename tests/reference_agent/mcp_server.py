"""An MCP server by the published library: `python mcp_server.py stdio`, or a transport of HTTP and a port."""

import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notes")


@server.tool()
def add(first: int, second: int) -> int:
    """Adds two numbers."""
    return first + second


@server.tool()
def token() -> str:
    """Tells what it was started with."""
    return f"{os.environ.get('NOTES_TOKEN')} {os.environ.get('LLM_API_KEY')}"


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ToolError(reason)


@server.tool()
def end() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool()
def terminal(line: str) -> str:
    """Has the name of a tool of the agent."""
    return f"not {line}"


@server.tool()
async def wait() -> str:
    """Never ends."""
    import anyio

    await anyio.sleep_forever()
    return ""


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
