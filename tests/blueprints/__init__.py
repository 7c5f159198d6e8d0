"""Reads of a conversation for tests of several blueprints, over HTTP and in Redis; and apps without a store."""

import functools
import json

from app import create_app
from settings.config import Config
from store.errors import ConversationNotFound
from store.link.secrets import fernet_for
from tests.conftest import message

API = "/api/conversations"
SECRET_KEY = "a key for tests of 32 characters"

#: two keys of the settings, each of which keeps its own
KEYS = ("the-first-key-of-the-settings", "the-other-key-of-the-settings")

NOT_FOUND = (404, {"detail": ConversationNotFound.words})

#: nothing listens there: a request that asks the store gets 503
NOWHERE = "unix:///nowhere/redis.sock"
FOREIGN = "https://evil.example"


@functools.cache
def away(**settings):
    """An app with these settings whose store is away, so that it counts no wrong keys; tests share it."""
    return create_app(Config.of(redis_url=NOWHERE, rate_limit_failures="none", **settings))


def log(client, url):
    """The events of a log, in the order of appending."""
    items, page = [], [{}]
    while page:
        page = client.get(f"{url}/events/search?after_seq={len(items)}").get_json()["items"]
        items += page
    return items


def updates(client, url):
    """The state events of a log: key and value."""
    return [(one["key"], one["value"]) for one in log(client, url) if one["kind"] == "ConversationStateUpdateEvent"]


def refused(response, *loc):
    """Whether a response refuses the member of the body at a location."""
    return response.status_code == 422 and response.get_json()["detail"][0]["loc"] == ["body", *loc]


def at(second: int) -> dict[str, str]:
    return {"timestamp": f"2026-11-20T20:00:{second:02}"}


def said(text, **members):
    return message(text, "agent", **members)


def stored(store, conversation) -> bytes:
    """All keys and values of a conversation in Redis, joined."""
    redis = store.conversations._redis
    readers = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"set": redis.smembers,
        b"zset": lambda key: redis.zrange(key, 0, -1),
    }
    keys = list(redis.scan_iter(f"conv:{{{conversation}}}*"))
    assert len(keys) >= 2
    return b"\n".join(key + b" " + repr(readers[redis.type(key)](key)).encode() for key in keys)


def sealed(store, conversation) -> dict[str, bytes]:
    found = store.conversations._redis.hgetall(f"conv:{{{conversation}}}:secrets")
    return {name.decode(): value for name, value in found.items()}


def opened(store, conversation) -> dict:
    """The secrets as an agent's host reads them with the server key."""
    fernet = fernet_for(SECRET_KEY, f"conversation {conversation}")
    return {name: json.loads(fernet.decrypt(value)) for name, value in sealed(store, conversation).items()}
