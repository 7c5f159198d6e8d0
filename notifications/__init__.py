"""Notifications: who is told, of what, in which words, and how a message is sent.

`supervisor/outbox.py` fills the queues of the targets, and `supervisor/notifications.py` empties them.
"""
