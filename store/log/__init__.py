"""The log of a conversation: how events are kept, matched and followed."""
