"""The settings of the server itself: its addresses, its processes, and its timeouts for clients."""

from dataclasses import dataclass
from ipaddress import ip_network
from urllib.parse import urlsplit

from core.origins import host_pattern, is_domain, origin
from settings import ConfigError, check_bounds, check_each, limit, setting, worker_processes


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The server: its addresses, its processes, and its limits for clients."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on.", least=1, most=65535)
    public_url: str = setting(
        "",
        "URL of this server for people. If it is set, notifications have links that show an "
        "action and ask for a decision.",
    )
    webhook_base_url: str = setting(
        "", "URL that sandboxes post to, without `/api/v1/webhooks`; unset: the URL of HOST and PORT."
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Host names of the server for clients, separated by commas, in addition to those of "
        "loopback: `agents.example.org`, `*.example.org`, `*`. A request for another host gets "
        "421. Unset: only loopback if no key is needed, else any host.",
    )
    allowed_origins: tuple[str, ...] = setting(
        (),
        "Origins of other web pages that may use the server and its sandboxes, separated by "
        "commas: `https://app.example.org`.",
    )
    preview_host: str = setting(
        "",
        "Domain of previews, such as `preview.example.org`, whose names `*.preview.example.org` resolve to this "
        "server. It may not be the server's own domain or a parent of it. Unset: `preview.localhost`, for clients on "
        "loopback.",
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "Addresses or networks of proxies, separated by commas, whose `X-Forwarded-For`, "
        "`-Proto`, `-Host` and `-Prefix` are trusted; unset: none.",
    )
    web_concurrency: int = setting(0, "Worker processes; 0 is one per core.", least=0, most=1024)
    drain_seconds: int = setting(
        0,
        "Seconds after SIGTERM in which the server still serves but `/ready` is 503, so that a "
        "load balancer removes the host before the listener closes (docs/scaling.md).",
        least=0,
        most=3600,
    )
    graceful_timeout: int = setting(
        30, "Seconds that running requests have to finish when the server stops.", least=0, most=3600
    )
    max_body_bytes: int = setting(8 * 1024 * 1024, "Maximum request body, in bytes; 413 beyond.", least=1024)
    max_archive_bytes: int = setting(
        2 * 1024 * 1024 * 1024,
        "Maximum archive for the start of a sandbox, in bytes, both as sent and uncompressed; 413 beyond.",
        least=1024,
    )
    max_import_bytes: int = limit(
        2 * 1024 * 1024 * 1024, "Maximum import of a conversation, in bytes; 413 beyond.", least=1024
    )
    body_seconds: float = limit(
        120.0, "Seconds in which the complete body of a request must arrive; 408 beyond.", least=0.1, most=3600
    )
    body_bytes_per_second: int = limit(
        1024, "Minimum rate of a body after its first 10 seconds, in bytes per second; 408 below.", least=1
    )
    socket_message_bytes: int = limit(1024 * 1024, "Maximum message of a client over a socket, in bytes.", least=1024)
    ping_seconds: float = limit(
        25.0, "Seconds without data after which a socket gets a ping and a stream gets a comment.", least=0.1, most=3600
    )
    idle_seconds: float = limit(
        90.0, "Seconds after which a client is dropped that answers no ping or reads no bytes.", least=0.2, most=7200
    )
    completion_seconds: float = limit(
        120.0,
        "Seconds that a call of `/v1/chat/completions` or `/v1/responses` without streaming "
        "waits for the agent to stop. The agent then continues. Streams have no such limit.",
        least=0.05,
        most=86_400,
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.public_url and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise ConfigError("PUBLIC_URL must begin with http:// or https://")
        check_each("ALLOWED_HOSTS", self.allowed_hosts, host_pattern, "host names without ports, `*.DOMAIN` or `*`")
        check_each("ALLOWED_ORIGINS", self.allowed_origins, origin, "origins such as https://app.example.org")
        self._check_preview_host()
        check_each("TRUSTED_PROXIES", self.trusted_proxies, ip_network, "addresses or networks such as 10.0.0.0/8")

    def _check_preview_host(self) -> None:
        """Raise ConfigError for an invalid domain, or one whose subdomains are the server's own names."""
        host = self.preview_host
        if host and not is_domain(host):
            raise ConfigError(f"PREVIEW_HOST must be a domain such as preview.example.org, not {host!r}")
        for name in (*self.allowed_hosts, urlsplit(self.public_url).hostname or ""):
            name = name.removeprefix("*.").lower()
            if host and (name == host.lower() or name.endswith(f".{host.lower()}")):
                raise ConfigError(f"PREVIEW_HOST must not be the domain of the server itself, {name}")

    @property
    def workers(self) -> int:
        """Return the number of worker processes."""
        return worker_processes(self.web_concurrency)

    @property
    def webhook_base(self) -> str:
        """Return the URL that sandboxes of this host post to."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return self.webhook_base_url or f"http://{host}:{self.port}/api/v1/webhooks"
