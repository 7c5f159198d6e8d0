"""One per host: starts the sandboxes that are wanted, sees what becomes of them, and drives what outlives a request.

    python -m supervisor

It holds nothing in memory that it needs again: one that is killed is followed by one that adopts its sandboxes.
"""
