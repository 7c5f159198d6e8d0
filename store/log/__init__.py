"""The log of a conversation: how events are stored, matched and followed."""
