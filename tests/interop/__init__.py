"""The published OpenHands agent server as a sandbox of ours: `make test-interop`."""
