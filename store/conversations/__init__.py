"""Conversations: their state, their events, their lists and copies."""
