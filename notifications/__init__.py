"""Notifications: recipients, events, texts and delivery.

`supervisor/notifications.py` fills the queues of the targets, and empties them.
"""
