"""Metrics, traces and logs of the processes."""
