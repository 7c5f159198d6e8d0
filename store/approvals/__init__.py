"""Approvals: what is decided of pending actions, by whom, and the audit of it."""
