"""Notifications: who is notified, of what, in which words, and how a message is sent.

`supervisor/notifications.py` fills the queues of the targets, and empties them.
"""
