"""The published OpenHands agent server as a sandbox of this server: `make test-interop`."""
