"""The supervisor, one per host: starts, observes and ends sandboxes, and drives start tasks and deliveries.

    python -m supervisor

A supervisor keeps no state in memory that the next one needs: after a kill the next supervisor adopts its sandboxes.
"""
