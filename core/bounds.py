"""Bounds that no setting changes, and what a write waits for."""

from dataclasses import dataclass

#: most secrets of a conversation, and bytes of JSON of them, in one request and in all: the commands of an agent have
#: them in their environment, for which, and for the arguments of a command, Linux has 2 MiB
MOST_SECRETS, MOST_SECRETS_BYTES = 100, 1024 * 1024

#: the least port of a sandbox that has a preview: below are the ways out of it, which speak in its name
LEAST_PREVIEW_PORT = 1024


@dataclass(frozen=True, slots=True)
class Durability:
    """fsync: on the disk of its server; replicas: number of replicas that have it. Neither: as Redis acknowledges."""

    fsync: bool = False
    replicas: int = 0

    def __str__(self) -> str:
        """The value of the setting DURABILITY."""
        return "fsync" if self.fsync else f"replicas:{self.replicas}" if self.replicas else "none"

    @property
    def is_proven(self) -> bool:
        """Whether a write needs a proof."""
        return self.fsync or self.replicas > 0


#: DURABILITY=none
AS_REDIS = Durability()
