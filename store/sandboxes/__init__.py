"""Sandboxes and starts: what is desired of each, what its host has observed."""
