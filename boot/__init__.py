"""Starts the embedded store and this host's supervisor, and restarts them with backoff.

Standard library only: the gunicorn master imports this room, and must not load modules that gevent patches in the
workers. The exception is `worker.py`, the class of the workers.
"""
