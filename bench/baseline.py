"""The least cost of a count in Flask: one view, one pipelined Redis call, no rules and no documentation."""

import os
from types import SimpleNamespace

from flask import Flask, Response
from redis import Redis

from config import Config
from meter import Meter


def sorted_set(conversation_id: str) -> str:
    """The key that the view counts; the bench fills it."""
    return f"bench:{conversation_id}"


def create_app() -> Flask:
    """The WSGI app; its Redis is that of REDIS_URL, as for the server."""
    app = Flask(__name__)
    bounds = ("body_seconds", "body_bytes_per_second", "idle_seconds")  # that boot/worker.py asks of an app
    app.config.update({name.upper(): getattr(Config(), name) for name in bounds})
    # What gunicorn.conf.py runs beside the requests, and ends: here nothing.
    app.extensions["expiry"] = SimpleNamespace(run=lambda stop: stop.wait())
    app.extensions["store"] = SimpleNamespace(followers=SimpleNamespace(stop=lambda: None))
    app.extensions["meter"] = Meter()
    redis = Redis.from_url(os.environ["REDIS_URL"])

    @app.get("/api/conversations/<conversation_id>/events/count")
    def count(conversation_id: str) -> Response:
        key = sorted_set(conversation_id)
        with redis.pipeline(transaction=False) as pipe:
            pipe.exists(key)
            pipe.zcount(key, "-inf", "+inf")
            _, number = pipe.execute()
        return Response(b"%d" % number, mimetype="application/json")

    return app
