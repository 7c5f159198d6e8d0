"""Notifications that are to be sent, and their targets."""
