"""A place of objects for tests of the store, and a store that freezes into it."""

import threading
from pathlib import Path

from flask.testing import FlaskClient

from app import create_app
from settings.config import Config
from settings.redis import RedisSettings
from store import Store, open_store
from store.conversations.cold import ObjectMissing, ObjectsAway
from tests.conftest import BOUNDS, SECRET_KEY, limits_of, unchecked


class ColdObjects:
    """Objects in the memory of the test; while `is_away`, a place that cannot be reached."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.is_away = False
        self.gets = 0
        self.lock = threading.Lock()

    def _reach(self) -> None:
        if self.is_away:
            raise ObjectsAway("the place of the tests is away")

    def put(self, name, content):
        self._reach()
        self.kept[name] = content

    def get(self, name):
        self._reach()
        with self.lock:
            self.gets += 1
        if name not in self.kept:
            raise ObjectMissing(name)
        return self.kept[name]

    def delete(self, name):
        self._reach()
        self.kept.pop(name, None)

    def names(self):
        self._reach()
        yield from list(self.kept)


def cold_store(url: str, objects, **bounds: int) -> Store:
    """A store whose conversations may become cold."""
    redis = RedisSettings(redis_url=url, redis_timeout=10, redis_connections=16, secret_key=SECRET_KEY)
    store = open_store(redis, unchecked(BOUNDS, **bounds), limits_of(3), cold=objects)
    store.data_version.ensure()  # a later server of the same Redis would take the data for old ones
    return store


def cold_client(url: str, objects) -> FlaskClient:
    """A client of an app whose conversations may become cold."""
    app = create_app(Config.of(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY))
    app.extensions["server"].store.conversations.cold.objects = objects  # the app reads a place from its settings
    return app.test_client()


class ColdFolder:
    """Objects in a folder, which processes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name, content):
        path = self.folder / f"{name}.part"
        path.write_bytes(content)
        path.rename(self.folder / name)

    def get(self, name):
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise ObjectMissing(name) from None

    def delete(self, name):
        (self.folder / name).unlink(missing_ok=True)

    def names(self):
        return (path.name for path in self.folder.iterdir() if path.suffix != ".part")
