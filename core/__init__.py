"""What every room may know: events, instants, JSON, rights, origins, digests, approval rules. Imports no room."""
