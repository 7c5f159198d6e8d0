"""Fixed bounds, and the durability of a write."""

from dataclasses import dataclass

#: Maximum number of secrets of a conversation, and their JSON in bytes, per request and in total. Commands get them in
#: the environment; Linux allows 2 MiB for environment and arguments together.
MOST_SECRETS, MOST_SECRETS_BYTES = 100, 1024 * 1024

#: Lowest port of a sandbox that has a preview. The ports below belong to the proxy, which speaks for the sandbox.
LEAST_PREVIEW_PORT = 1024


@dataclass(frozen=True, slots=True)
class Durability:
    """What a write waits for. fsync: the disk of the Redis server; replicas: number of copies. Neither: Redis alone."""

    fsync: bool = False
    replicas: int = 0

    def __str__(self) -> str:
        """The value of the setting DURABILITY."""
        return "fsync" if self.fsync else f"replicas:{self.replicas}" if self.replicas else "none"

    @property
    def is_proven(self) -> bool:
        """Return whether a write waits for a proof."""
        return self.fsync or self.replicas > 0


#: DURABILITY=none
AS_REDIS = Durability()
