"""The settings, read from the environment in one place and checked once.

Every field bears its help text; docs/settings.md is made from them (`make docs`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from environs import Env

from core.bounds import Bounds, Durability, Limits
from core.origins import host_pattern, is_domain, is_loopback, origin
from core.prices import Budgets, read_budget, read_prices
from settings import (
    ConfigError,
    check_bounds,
    check_each,
    check_rate,
    from_variables,
    read_ports,
    read_secret_keys,
    read_users,
)
from settings import setting as _setting
from settings.approvals import ApprovalSettings
from settings.data_dir import kept_key
from settings.keeping import KeepingSettings

#: schemes of a REDIS_URL; `store/link/connection.py` explains each
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")

_DURABILITY = re.compile(r"none|fsync|replicas:([1-9][0-9]?)")


#: long enough not to be guessed, and of characters that every header can bear
_KEY = re.compile(r"[!-~]{16,512}")

#: numbered variables that are read
_MOST_NUMBERED = 100


def check_key(name: str, key: str) -> None:
    """Raises ConfigError with a sentence that names where the key stands, and does not show it."""
    if not _KEY.fullmatch(key):
        raise ConfigError(f"{name} must have from 16 to 512 characters, all of them printable ASCII and none a blank")


def read_keys(variable: Callable[[str, str], str], file: Path) -> tuple[str, ...]:
    """The keys of the environment, then that of the file, each once.

    variable: the value of a variable, or the text after its name if it is unset; an empty one counts as unset. Raises
    ConfigError, which names the variable or the file, of a key that is none, and of what is set and gives no key:
    whoever set it believes that the server asks for one.
    """
    listed = variable("SESSION_API_KEYS", "")
    of_list = [key.strip() for key in listed.split(",") if key.strip()] or ([""] if listed else [])
    named = [("SESSION_API_KEYS", key) for key in of_list] + _numbered(variable)
    if key := variable("SESSION_API_KEY", ""):
        named.insert(0, ("SESSION_API_KEY", key))
    try:
        named.append((str(file), file.read_text().removesuffix("\n")))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    for name, key in named:
        check_key(name, key)
    return tuple(dict.fromkeys(key for _, key in named))


def _numbered(variable: Callable[[str, str], str]) -> list[tuple[str, str]]:
    """The keys of `OH_SESSION_API_KEYS_0`, `_1` and so on. Raises ConfigError of a gap, and of no number."""
    prefix = "OH_SESSION_API_KEYS"
    names = [f"{prefix}_{n}" for n in range(_MOST_NUMBERED)]
    given = [name for name in (prefix, *names) if variable(name, "")]
    if odd := [name for name in given if name not in names[: len(given)]]:
        raise ConfigError(f"{odd[0]} must follow the number before it: {prefix}_0 is the first")
    return [(name, variable(name, "")) for name in given]


#: the default of that setting
DATA_DIR = "data"


@dataclass(frozen=True, slots=True)
class Config(KeepingSettings, ApprovalSettings):
    """All settings. The name of a setting is its field's name in capitals."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8000, "Port to listen on.", least=1, most=65535)
    auth: str = _setting(
        "auto",
        "`auto`: API keys are needed where one is set; without one, no key is needed on a loopback address, and on any "
        "other a key is made in the file `key` in DATA_DIR. `keys`: always needed, and made where none is set. `open`: "
        "never needed.",
        choices=("auto", "keys", "open"),
    )
    api_keys: tuple[str, ...] = _setting(
        (),
        "Admin keys: one, several with commas, or one per variable; also the line of the file `key` in DATA_DIR. An "
        "empty variable counts as unset. Commas without a key, and an empty file, stop the start. 16 characters or "
        "more, printable ASCII without blanks.",
        secret=True,
        names="`SESSION_API_KEY`, `SESSION_API_KEYS`, `OH_SESSION_API_KEYS_0` …",
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (),
        "Host names by which clients reach the server, with commas, beside those of loopback: `agents.example.org`, "
        "`*.example.org`, `*`. A request for another host gets 421. Unset: loopback alone where no key is needed, any "
        "host where keys are.",
    )
    allowed_origins: tuple[str, ...] = _setting(
        (),
        "Origins of web pages elsewhere that may use the server and its sandboxes, with commas: "
        "`https://app.example.org`.",
    )
    preview_host: str = _setting(
        "",
        "Domain of previews, whose names must lead to this server: with `preview.example.org` a preview is at "
        "`PORT-SANDBOX.preview.example.org`, at the port of the server. Not the server's own domain, nor one above it. "
        "Unset: `preview.localhost`, for clients that reach the server by a name or an address of loopback.",
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (),
        "Addresses or networks of proxies, with commas, whose `X-Forwarded-For`, `-Proto`, `-Host` and "
        "`-Prefix` are believed; unset: nobody's.",
    )
    redis_url: str = _setting(
        "",
        "The Redis to use: `redis://`, `rediss://`, `unix://`, `redis+sentinel://HOST,HOST/NAME` or "
        "`redis+cluster://HOST,HOST`, users and passwords percent-encoded; those of the sentinels themselves as "
        "`?sentinel_username=…&sentinel_password=…`. Unset: an embedded one.",
        secret=True,  # it may hold a password
    )
    redis_timeout: float = _setting(
        1.0,
        "Timeout of one try of a command, in seconds; a command is tried twice. What `/ready` asks waits half of it.",
        least=0.05,
        most=60,
    )
    redis_connections: int = _setting(
        64, "Most connections to Redis per worker, in a cluster to each of its nodes.", least=1, most=10_000
    )
    durability: str = _setting(
        "",
        "What must hold before a write is acknowledged: `fsync`: it is on the disk of Redis; `replicas:N`: N replicas "
        "have it; `none`: Redis has it. A write of which this is not known gets 503. Unset: `fsync` with the embedded "
        "store, `none` with a REDIS_URL.",
    )
    web_concurrency: int = _setting(0, "Worker processes; 0 is one per core.", least=0, most=1024)
    data_dir: str = _setting(
        DATA_DIR, "Folder of the embedded store's append-only file and of the sandboxes; only its owner may read it."
    )
    max_body_bytes: int = _setting(
        8 * 1024 * 1024, "Largest request body, in bytes; a longer one gets 413.", least=1024
    )
    max_archive_bytes: int = _setting(
        2 * 1024 * 1024 * 1024,
        "Largest archive that a sandbox is started from, in bytes, as it is sent and uncompressed; 413 beyond.",
        least=1024,
    )
    body_seconds: float = _setting(
        120.0, "Seconds in which the whole body of a request must come; a slower one gets 408.", least=0.1, most=3600
    )
    body_bytes_per_second: int = _setting(
        1024, "Least rate of a body after its first 10 seconds, in bytes per second; a slower one gets 408.", least=1
    )
    text_cache_bytes: int = _setting(
        64 * 1024 * 1024, "Most message text that a worker keeps for the `body` filter, in bytes.", least=0
    )
    secret_key: str = _setting(
        "",
        "Seals the secrets of conversations and the keys of sandboxes, 16 characters or more. Several, separated by "
        "commas: the first seals, all open; hosts of one Redis need the same. Unset: the key in `DATA_DIR/secret_key`, "
        "which is made at the first start.",
        secret=True,
    )
    max_pending_actions: int = _setting(
        256,
        "Most actions of a conversation that wait for a decision, 409 beyond; where none waits, most kept open.",
        least=1,
        most=1000,
    )
    max_event_kinds: int = _setting(
        256, "Most pairs of kind and source among the events of a conversation; 422 beyond.", least=1, most=1000
    )
    max_reason_bytes: int = _setting(
        2048, "Longest reason of a rejection, in bytes of UTF-8; a longer one gets 422.", least=64, most=32_768
    )
    max_followers: int = _setting(
        2000, "Most sockets, streams and long polls per worker; one more is refused.", least=1, most=100_000
    )
    follower_bytes: int = _setting(
        4 * 1024 * 1024,
        "Events that a worker keeps for the slowest follower of a conversation, in bytes; a slower one is dropped.",
        least=64 * 1024,
    )
    socket_message_bytes: int = _setting(
        1024 * 1024, "Largest message that a client may send over a socket, in bytes.", least=1024
    )
    ping_seconds: float = _setting(
        25.0, "Seconds of silence after which a socket is pinged and a stream gets a comment.", least=0.1, most=3600
    )
    idle_seconds: float = _setting(
        90.0, "Seconds after which a client that answers no ping, or takes no bytes, is dropped.", least=0.2, most=7200
    )
    sandbox_specs: str = _setting("", "TOML file of the sandbox specs; unset: the bundled `specs.toml`.")
    model_prices: str = _setting(
        "",
        "What models cost, with commas: `MODEL=INPUT/OUTPUT` or `MODEL=INPUT/OUTPUT/CACHED`, in US dollars per million "
        "tokens, such as `qwen3:32b=0/0, mine=0.5/1.5/0.05`. Overrides and extends the table of the bundled agent.",
    )
    model_budget_conversation: str = _setting(
        "",
        "Most that the sandbox of a conversation may spend on models through its way out: dollars, `NUMBER tokens`, or "
        "both with a comma: `5, 2000000 tokens`. Beyond it its calls are refused (docs/egress.md). Unset: no bound.",
    )
    model_budget_key: str = _setting(
        "", "The same for all sandboxes that one key has started, in a day (UTC). Unset: no bound."
    )
    model_budget_day: str = _setting("", "The same for all sandboxes together, in a day (UTC). Unset: no bound.")
    sandbox_dir: str = _setting("", "Folder of the sandboxes of this host; unset: `sandboxes` in DATA_DIR.")
    max_sandboxes: int = _setting(20, "Most sandboxes that run or start, on all hosts.", least=1, most=10_000)
    sandbox_overflow: str = _setting(
        "pause",
        "When one more is wanted: `pause` the one that has been idle for longest, or `refuse` it (429).",
        choices=("pause", "refuse"),
    )
    place_seconds: float = _setting(
        300.0,
        "Seconds that a start waits for a place while MAX_SANDBOXES run and none is idle, then it fails (429).",
        least=0,
        most=86_400,
    )
    max_stopped: int = _setting(
        1000,
        "Most sandboxes that are kept without running (paused, failed, missing); then a new one is refused (429).",
        least=1,
        most=100_000,
    )
    keep_failed_days: float = _setting(
        30.0, "Days after which a failed sandbox is deleted with its files; 0 keeps it.", least=0, most=36_500
    )
    workspace_seconds: float = _setting(
        3600.0,
        "Seconds without use after which a workspace sandbox, which a client had before its first conversation, is "
        "deleted with its files.",
        least=60,
        most=31_536_000,
    )
    sandbox_sharing: str = _setting(
        "per_conversation",
        "`per_conversation`: each app conversation starts a sandbox; `shared`: one serves several.",
        choices=("per_conversation", "shared"),
    )
    kubernetes_sandboxes: str = _setting(
        "auto",
        'What a sandbox with `runtime = "kubernetes"` is: `pods`, or a Sandbox of `agent-sandbox`; `auto`: a Sandbox '
        "where the cluster has them (docs/kubernetes.md).",
        choices=("auto", "pods", "agent-sandbox"),
    )
    kubernetes_egress_image: str = _setting(
        "",
        'Image of this server, of which a pod with `egress = "named"` gets a container that carries its way out.',
    )
    sandbox_starts: int = _setting(4, "Sandboxes that a host starts at once.", least=1, most=1000)
    sandbox_start_seconds: float = _setting(
        120.0, "Seconds in which the agent server of a new sandbox must respond.", least=1, most=3600
    )
    start_task_days: float = _setting(
        7.0, "Days after which a finished start task of an app conversation is forgotten.", least=0.001, most=36_500
    )
    supervisor: int = _setting(
        1, "1: the server runs this host's supervisor; 0: a process of its own is the supervisor.", least=0, most=1
    )
    stop_sandboxes: int = _setting(
        0,
        "1, as in `make run`: a supervisor that is told to end stops its sandboxes, which are PAUSED then, with their "
        "files; 0: they go on, and the next one adopts them.",
        least=0,
        most=1,
    )
    resume_sandboxes: int = _setting(
        0,
        "1: sandboxes that ran when their server ended start again with it; 0: they start when they are used.",
        least=0,
        most=1,
    )
    orphan_seconds: float = _setting(
        3600.0,
        "Seconds without a living supervisor after which a process sandbox ends; one that starts before adopts it.",
        least=1,
        most=365 * 86400,
    )
    sandbox_ports: str = _setting(
        "20000-29999",
        "First and last port of process sandboxes; those that the kernel takes by itself (`ip_local_port_range`) are "
        "left out.",
    )
    sandbox_users: str = _setting(
        "1879048192-2147418111",
        "First and last user id of process sandboxes where the server is root: each has a user of its own; `none`: "
        "they run as root. No account and no subordinate id may lie there (docs/isolation.md).",
    )
    host_id: str = _setting("", "Name of this host among those that share a Redis; unset: the system's host name.")
    host_seconds: float = _setting(
        10.0,
        "Seconds without a heartbeat after which a host's sandboxes are MISSING.",
        least=2,
        most=3600,
    )
    sandbox_url_host: str = _setting("127.0.0.1", "Host name in the URLs of this host's sandboxes.")
    webhook_base_url: str = _setting(
        "", "URL that sandboxes post to, of `/api/v1/webhooks`; unset: that of HOST and PORT."
    )
    wake_seconds: float = _setting(
        25.0,
        "Seconds that a message, a run or a setting waits for a sandbox that it wakes; 0: it wakes none and gets 503.",
        least=0,
        most=600,
    )
    agent_seconds: float = _setting(
        10.0, "Deadline of a call to a sandbox's agent server, in seconds.", least=0.1, most=600
    )
    completion_seconds: float = _setting(
        120.0,
        "Seconds that a call of `/v1/chat/completions` or `/v1/responses` which is not streamed waits for the agent to "
        "stop. The agent goes on after that. A stream has no such bound.",
        least=0.05,
        most=86_400,
    )
    rate_limit_writes: str = _setting(
        "6000/minute",
        "Writing requests with one key: `NUMBER/second`, `/minute`, `/hour` or `/day`; 429 beyond. `none`: no limit.",
    )
    rate_limit_reads: str = _setting(
        "none", "Reading requests with one key; `none`: no limit, and no round trip to count them."
    )
    rate_limit_starts: str = _setting(
        "120/minute",
        "Starts and resumes of sandboxes and starts of app conversations with one key, without keys of one address.",
    )
    rate_limit_failures: str = _setting("60/minute", "Requests of one address with a wrong key or without one.")
    rate_limit_hook_bytes: str = _setting(
        "200000000/minute", "Bytes of what one sandbox posts, as the rates above; 429 beyond, before the body is read."
    )
    max_sandbox_bytes: int = _setting(
        16 << 30, "Most bytes that one sandbox posts in all; 507 beyond.", least=1 << 20, most=1 << 50
    )
    max_conversation_bytes: int = _setting(
        1 << 30,
        "Most bytes that the log of a conversation has in Redis, where it is packed; 413 beyond.",
        least=1 << 20,
        most=1 << 40,
    )
    max_store_bytes: int = _setting(
        0,
        "Most memory of the embedded store, in bytes; 507 before it is used up. 0: half of what the machine, or the "
        "container, has. A Redis of yours has its own `maxmemory`.",
        least=0,
        most=1 << 44,
    )
    max_followers_per_key: int = _setting(
        1000, "Most sockets, streams and long polls with one key per worker; one more is refused.", least=1
    )
    max_silent_sockets: int = _setting(
        64, "Most sockets of one address per worker that have not shown a key yet; one more is refused.", least=1
    )
    max_idempotency_keys: int = _setting(
        50_000,
        "Most Idempotency-Keys of one client that are remembered, each for 24 hours; 429 beyond.",
        least=1,
        most=10_000_000,
    )
    max_conversations_per_sandbox: int = _setting(
        100, "Most conversations in one sandbox, those that start included; 429 beyond.", least=1, most=100_000
    )
    max_starts: int = _setting(
        1000, "Most starts of app conversations that are under way on all hosts; 429 beyond.", least=1, most=1_000_000
    )
    drain_seconds: int = _setting(
        0,
        "Seconds after SIGTERM in which the server serves as before while `/ready` is 503, so that a balancer takes "
        "the host out before the listener closes (docs/scaling.md).",
        least=0,
        most=3600,
    )
    log_level: str = _setting(
        "info",
        "`debug`, `info`, `warning`, `error` or `critical`.",
        choices=("debug", "info", "warning", "error", "critical"),
    )
    log_format: str = _setting(
        "auto",
        "`text`: lines for people, in colours at a terminal unless NO_COLOR is set; `json`: every line of the standard "
        "error is one JSON object (docs/monitoring.md); `auto`: text at a terminal, else JSON.",
        choices=("auto", "json", "text"),
    )
    graceful_timeout: int = _setting(30, "Seconds that running requests get when the server stops.", least=0, most=3600)

    def __post_init__(self) -> None:
        check_bounds(self)
        self.check_approvals()
        self._check_store()
        self.check_keeping()
        for of in ("writes", "reads", "starts", "failures", "hook_bytes"):
            check_rate(f"RATE_LIMIT_{of.upper()}", getattr(self, f"rate_limit_{of}"))
        if any(len(key) < 16 for key in self.secret_keys):
            raise ConfigError("SECRET_KEY must have 16 characters or more, each of several too")
        for key in self.api_keys:
            check_key("SESSION_API_KEY", key)
        check_each("ALLOWED_HOSTS", self.allowed_hosts, host_pattern, "host names without ports, `*.DOMAIN` or `*`")
        check_each("ALLOWED_ORIGINS", self.allowed_origins, origin, "origins such as https://app.example.org")
        self._check_preview_host()
        check_each("TRUSTED_PROXIES", self.trusted_proxies, ip_network, "addresses or networks such as 10.0.0.0/8")
        read_users("SANDBOX_USERS", self.sandbox_users)
        try:
            read_prices(self.model_prices)
        except ValueError as error:
            raise ConfigError(f"MODEL_PRICES {error}") from None
        self.budgets  # noqa: B018 - the property refuses a wrong one
        self.sandbox_port_range  # noqa: B018 - the property refuses a wrong one

    def _check_store(self) -> None:
        """Raises ConfigError."""
        if self.redis_url and urlsplit(self.redis_url).scheme not in REDIS_SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
            raise ConfigError(f"REDIS_URL must begin with one of {schemes}")
        if self.durability and not _DURABILITY.fullmatch(self.durability):
            raise ConfigError(
                f"DURABILITY must be fsync, none or replicas:N with N from 1 to 99, not {self.durability!r}"
            )

    def _check_preview_host(self) -> None:
        """Raises ConfigError of what is no domain, and of one whose names below would be the server's own."""
        host = self.preview_host
        if host and not is_domain(host):
            raise ConfigError(f"PREVIEW_HOST must be a domain such as preview.example.org, not {host!r}")
        for name in (*self.allowed_hosts, urlsplit(self.public_url).hostname or ""):
            name = name.removeprefix("*.").lower()
            if host and (name == host.lower() or name.endswith(f".{host.lower()}")):
                raise ConfigError(f"PREVIEW_HOST must not be the domain of the server itself, {name}")

    @property
    def is_open(self) -> bool:
        """Whether no key is needed. gunicorn's master has replaced AUTH=auto by its outcome (`boot/posture.py`)."""
        return self.auth == "open" or (self.auth == "auto" and not self.api_keys and is_loopback(self.host))

    @property
    def key_file(self) -> Path:
        """Where a key lies that was made by the server."""
        return Path(self.data_dir) / "key"

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """The keys of SECRET_KEY; the first seals, and all open."""
        return read_secret_keys(self.secret_key)

    @property
    def sandbox_port_range(self) -> range:
        """The ports of process sandboxes. Raises ConfigError."""
        return read_ports("SANDBOX_PORTS", self.sandbox_ports)

    @property
    def webhook_base(self) -> str:
        """The URL that sandboxes of this host post to."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return self.webhook_base_url or f"http://{host}:{self.port}/api/v1/webhooks"

    @property
    def write_durability(self) -> Durability:
        """What must hold before a write is acknowledged, as DURABILITY says."""
        found = _DURABILITY.fullmatch(self.durability)
        return Durability(fsync=self.durability == "fsync", replicas=int(found[1] or 0) if found else 0)

    @property
    def limits(self) -> Limits:
        """The limits of sandboxes and of their starts."""
        return Limits(
            most=self.max_sandboxes,
            pause_idlest=self.sandbox_overflow == "pause",
            host_seconds=self.host_seconds,
            start_seconds=self.sandbox_start_seconds,
            place_seconds=self.place_seconds,
            most_stopped=self.max_stopped,
            keep_failed_days=self.keep_failed_days,
            workspace_seconds=self.workspace_seconds,
            start_task_days=self.start_task_days,
            most_conversations=self.max_conversations_per_sandbox,
            most_starts=self.max_starts,
            posted_bytes=self.max_sandbox_bytes,
            posting_rate=self.rate_limit_hook_bytes,
        )

    @property
    def budgets(self) -> Budgets:
        """The budgets of models. Raises ConfigError."""
        found = []
        for of in Budgets._fields:
            try:
                found.append(read_budget(getattr(self, f"model_budget_{of}")))
            except ValueError as error:
                raise ConfigError(f"MODEL_BUDGET_{of.upper()} {error}") from None
        return Budgets(*found)

    @property
    def bounds(self) -> Bounds:
        """The bounds of one conversation."""
        return Bounds(
            pending_actions=self.max_pending_actions,
            event_kinds=self.max_event_kinds,
            reason_bytes=self.max_reason_bytes,
            log_bytes=self.max_conversation_bytes,
            confirmation_seconds=self.confirmation_seconds,
            audit_days=self.audit_days,
            cold_bytes=self.cold_max_bytes,
        )

    @classmethod
    def from_env(cls) -> "Config":
        """Read the settings from the environment; an empty variable counts as unset. Raises ConfigError."""
        values = from_variables(cls)
        values["api_keys"] = read_keys(Env().str, cls(**values).key_file)
        if "secret_key" not in values:
            try:
                values["secret_key"] = kept_key(values.get("data_dir") or DATA_DIR)
            except (OSError, ValueError) as error:
                raise ConfigError(f"The file secret_key in DATA_DIR cannot be read: {error}") from None
        return cls(**values)
