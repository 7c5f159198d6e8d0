"""Whether a proxy of the environment stands before a server."""

from ipaddress import IPv6Address, ip_address

import httpx

from agent_server_client.errors import AgentServerError


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine, before which no proxy of the environment stands.

    Raises AgentServerError for what is no URL.
    """
    try:
        host = httpx.URL(url).host.rstrip(".")
    except httpx.InvalidURL as error:
        raise AgentServerError(None, f"The URL of the server cannot be read: {error}") from error
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_loopback or address.is_unspecified  # a connection to 0.0.0.0 reaches this machine


def bad_proxy(error: Exception) -> AgentServerError:
    """The error of a proxy that httpx does not take."""
    advice = "Correct or unset ALL_PROXY, HTTP_PROXY and HTTPS_PROXY; a SOCKS proxy needs the package httpx[socks]"
    return AgentServerError(None, f"A proxy of the environment cannot be used: {str(error).rstrip('.')}. {advice}")
