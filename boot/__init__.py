"""What starts and keeps processes: the embedded store and this host's supervisor, each restarted with backoff.

Only the standard library stands here: the gunicorn master imports it, and must not load what gevent has to patch in
the workers. The exception is `worker.py`, the class of the workers themselves.
"""
