"""From settings to a store, for the server, for supervisors and for commands alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from boot.embedded import EmbeddedStore, running_url
from config import Config
from meter import Meter
from objects import open_objects
from objects.metered import Metered
from store import Bounds, Durability, Limits, Objects, Store, open_store


def open_store_of(config: Config, meter: Meter | None = None) -> Store:
    """The store that the settings name, which tells a meter of what it does. Connects when first asked.

    Raises ConfigError for an archive that cannot be used.
    """
    meter = meter or Meter()
    return open_store(
        config.redis_url,
        timeout=config.redis_timeout,
        max_connections=config.redis_connections,
        text_cache_bytes=config.text_cache_bytes,
        ring_bytes=config.follower_bytes,
        most_followers=config.max_followers,
        secret_keys=config.secret_keys,
        most_idempotency_keys=config.max_idempotency_keys,
        objects=_archive_of(config, meter),
        meter=meter,
        durability=Durability(fsync=config.durability == "fsync", replicas=config.replicas),
        limits=Limits(
            most=config.max_sandboxes,
            pause_idlest=config.sandbox_overflow == "pause",
            host_seconds=config.host_seconds,
            start_seconds=config.sandbox_start_seconds,
            most_stopped=config.max_stopped,
            keep_failed_days=config.keep_failed_days,
            start_task_days=config.start_task_days,
            most_conversations=config.max_conversations_per_sandbox,
            most_starts=config.max_starts,
        ),
        bounds=Bounds(
            pending_actions=config.max_pending_actions,
            event_kinds=config.max_event_kinds,
            reason_bytes=config.max_reason_bytes,
            confirmation_seconds=config.confirmation_seconds,
            audit_days=config.audit_days,
            archive_bytes=config.archive_max_bytes,
        ),
    )


def _archive_of(config: Config, meter: Meter) -> Objects | None:
    """The place of cold conversations' objects; None where the settings name none. Raises ConfigError."""
    place = open_objects(config)
    return place and Metered(place, meter)


@contextmanager
def store_here() -> Iterator[Store]:
    """The store of REDIS_URL; without one, the embedded store of DATA_DIR, whether its server runs or not.

    Raises ConfigError, and RuntimeError where the embedded store does not start.
    """
    config = Config.from_env()
    if config.redis_url:
        yield open_store_of(config)
    elif url := running_url(Path(config.data_dir)):
        yield open_store_of(replace(config, redis_url=url))
    else:
        embedded = EmbeddedStore(config.data_dir)
        try:
            yield open_store_of(replace(config, redis_url=embedded.url))
        finally:
            embedded.stop()
