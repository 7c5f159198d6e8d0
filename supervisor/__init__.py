"""The supervisor, one per host: starts, observes and ends sandboxes, and drives start tasks and deliveries.

    python -m supervisor

All its lasting state is in the store: after a kill the next supervisor adopts its sandboxes.
"""
