"""What approvals stand on: digests of what was shown, rules, one-time links."""
