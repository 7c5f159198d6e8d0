"""Sandboxes and starts: what is desired of each, what its host has observed."""

from redis import Redis

from core.bounds import Limits
from store.link.health import Health
from store.link.secrets import Sealer
from store.sandboxes.checks import Checks, Echoes
from store.sandboxes.files import Archives, SandboxFiles
from store.sandboxes.hosts import Hosts
from store.sandboxes.sandboxes import Places, Sandboxes
from store.sandboxes.warm import WarmSandboxes
from store.scripts import Scripts


class SandboxWing(Sandboxes):
    """All sandboxes, and by name what belongs to them."""

    def __init__(
        self, redis: "Redis", probe: "Redis", scripts: Scripts, limits: Limits, sealer: Sealer, health: Health
    ) -> None:
        """probe: a client that waits briefly."""
        super().__init__(redis, scripts, limits, sealer)
        self.warm = WarmSandboxes(redis, scripts, limits, sealer)
        self.files = SandboxFiles(redis, health)
        self.archives = Archives(redis, scripts)
        self.checks = Checks(scripts, limits)
        self.echoes = Echoes(scripts)
        self.hosts = Hosts(probe)
        self.places = Places(redis, scripts, limits.most_conversations)
