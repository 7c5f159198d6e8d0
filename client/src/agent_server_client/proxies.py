"""Whether a proxy of the environment stands before a server."""

from ipaddress import ip_address

import httpx

from agent_server_client.errors import AgentServerError


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine, which no proxy of the environment stands before. Raises httpx.InvalidURL."""
    host = httpx.URL(url).host.rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def bad_proxy(error: Exception) -> AgentServerError:
    """The error of a proxy that httpx does not take."""
    advice = "Correct or unset ALL_PROXY, HTTP_PROXY and HTTPS_PROXY; a SOCKS proxy needs the package httpx[socks]"
    return AgentServerError(None, f"A proxy of the environment cannot be used: {str(error).rstrip('.')}. {advice}")
