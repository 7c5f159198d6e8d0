"""The settings of this host: its supervisor, the runtimes of its sandboxes, and its logs."""

import socket
from dataclasses import dataclass
from pathlib import Path

from settings import check_bounds, limit, read_ports, read_users, setting

#: Default of AGENTS_DIR, where `make agent` installs agents.
AGENTS = Path(__file__).parent.parent / ".agents"


@dataclass(frozen=True, slots=True)
class HostSettings:
    """This host: its supervisor, the runtimes of its sandboxes, and its logs."""

    host_id: str = setting("", "Name of this host among those that share a Redis; unset: the system's host name.")
    sandbox_specs: str = setting("", "TOML file of the sandbox specs; unset: the bundled `specs.toml`.")
    agents_dir: str = setting(
        "", "Folder of the agents that `make agent` installs, and of their specs; unset: `.agents` beside the server."
    )
    sandbox_dir: str = setting("", "Folder of the sandboxes of this host; unset: `sandboxes` in DATA_DIR.")
    supervisor: int = setting(
        1, "1: the server runs this host's supervisor; 0: a separate process is the supervisor.", least=0, most=1
    )
    stop_sandboxes: int = setting(
        0,
        "1: when a supervisor ends, it stops its sandboxes, which become PAUSED and keep their "
        "files; 0: they continue, and the next supervisor adopts them. `make run` sets 1.",
        least=0,
        most=1,
    )
    resume_sandboxes: int = setting(
        0,
        "1: when the server starts, it starts the sandboxes that ran when it ended; 0: they start on their next use.",
        least=0,
        most=1,
    )
    orphan_seconds: float = setting(
        3600.0,
        "Seconds without a supervisor after which a process sandbox ends. A supervisor that starts earlier adopts it.",
        least=1,
        most=365 * 86400,
    )
    sandbox_starts: int = limit(4, "Number of sandboxes that a host starts simultaneously.", least=1, most=1000)
    sandbox_ports: str = setting(
        "20000-29999",
        "First and last port of process sandboxes. Ports that the kernel assigns itself "
        "(`ip_local_port_range`) are left out.",
    )
    sandbox_users: str = setting(
        "1879048192-2147418111",
        "First and last user id of process sandboxes of a server that runs as root: each has "
        "its own user. `none`: they run as root. The range may not contain accounts or "
        "subordinate ids (docs/isolation.md).",
    )
    sandbox_url_host: str = setting("127.0.0.1", "Host name in the URLs of this host's sandboxes.")
    kubernetes_sandboxes: str = setting(
        "auto",
        'Form of a sandbox with `runtime = "kubernetes"`: `pods`, or a Sandbox of '
        "`agent-sandbox`. `auto`: a Sandbox if the cluster has them (docs/kubernetes.md).",
        choices=("auto", "pods", "agent-sandbox"),
    )
    kubernetes_egress_image: str = setting(
        "",
        'Image of this server. A pod with `egress = "named"` gets a container of it with the egress proxy.',
    )
    log_level: str = setting(
        "info",
        "`debug`, `info`, `warning`, `error` or `critical`.",
        choices=("debug", "info", "warning", "error", "critical"),
    )
    log_format: str = setting(
        "auto",
        "`text`: lines for people, with colours at a terminal unless NO_COLOR is set; `json`: "
        "every line of standard error is a JSON object (docs/monitoring.md); `auto`: text at a "
        "terminal, else JSON.",
        choices=("auto", "json", "text"),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        self.user_range  # noqa: B018 - the property raises for an invalid value
        self.port_range  # noqa: B018 - the property raises for an invalid value

    @property
    def name(self) -> str:
        """Return the name of this host among the hosts of a Redis."""
        return self.host_id or socket.gethostname()

    @property
    def agents_folder(self) -> Path:
        """Return the folder of the agents that `make agent` installs."""
        return Path(self.agents_dir) if self.agents_dir else AGENTS

    @property
    def port_range(self) -> range:
        """Return the ports of process sandboxes. Raises ConfigError."""
        return read_ports("SANDBOX_PORTS", self.sandbox_ports)

    @property
    def user_range(self) -> range:
        """Return the user ids of process sandboxes; empty: they run as root. Raises ConfigError."""
        return read_users("SANDBOX_USERS", self.sandbox_users)
