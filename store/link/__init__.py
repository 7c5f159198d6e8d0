"""The way to Redis: connections, what a write waits for, what is sealed, signals."""
