"""Opens the store of the settings, for the server, supervisors and commands."""

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
    """Return the store of the settings. It connects on its first use. Raises ConfigError for unusable cold storage.

    meter: counts its calls.
    """
    meter = meter or Meter()
    cold = _cold_objects(config, meter)
    return open_store(config.redis, config.conversations, config.sandboxes, cold=cold, meter=meter)


def _cold_objects(config: Config, meter: Meter) -> Objects | None:
    """Return the place of cold conversations' objects; None if none is configured. Raises ConfigError."""
    place = open_objects(config.keeping)
    return place and Metered(place, meter)


@contextmanager
def settings_here() -> Iterator[Config]:
    """Yield the settings with the URL of the store: REDIS_URL, or the URL of the embedded store in DATA_DIR.

    The embedded store is started if its server does not run. Raises ConfigError, and RuntimeError if it does not start.
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
    """Yield the store of `settings_here`. Raises its errors too."""
    with settings_here() as config:
        yield open_store_of(config)
