"""What the processes tell about themselves: metrics, traces, lines of the log."""
