"""From settings to a store, for the server, for supervisors and for commands alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from boot.embedded import EmbeddedStore, running_url
from settings.config import Config
from store import Objects, Store, open_store
from store.objects import Metered, open_objects
from telemetry.meter import Meter


def open_store_of(config: Config, meter: Meter | None = None) -> Store:
    """The store that the settings name, which tells a meter of what it does. Connects when first asked.

    Raises ConfigError for cold storage that cannot be used.
    """
    meter = meter or Meter()
    cold = _cold_objects(config, meter)
    return open_store(config.redis, config.conversations, config.sandboxes, cold=cold, meter=meter)


def _cold_objects(config: Config, meter: Meter) -> Objects | None:
    """The place of cold conversations' objects; None where the settings name none. Raises ConfigError."""
    place = open_objects(config.keeping)
    return place and Metered(place, meter)


@contextmanager
def settings_here() -> Iterator[Config]:
    """The settings with the URL of the store: REDIS_URL; without one, that of the embedded store of DATA_DIR, whether
    its server runs or not.

    Raises ConfigError, and RuntimeError where the embedded store does not start.
    """
    config = Config.from_env()
    if config.redis.redis_url:
        yield config
    elif url := running_url(Path(config.redis.data_dir)):
        yield _with_url(config, url)
    else:
        embedded = EmbeddedStore(config.redis.data_dir, config.redis.max_store_bytes)
        try:
            yield _with_url(config, embedded.url)
        finally:
            embedded.stop()


def _with_url(config: Config, url: str) -> Config:
    return replace(config, redis=replace(config.redis, redis_url=url))


@contextmanager
def store_here() -> Iterator[Store]:
    """The store of those settings. Raises as `settings_here`."""
    with settings_here() as config:
        yield open_store_of(config)
