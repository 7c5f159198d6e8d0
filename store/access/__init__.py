"""Keys of access, and what one client may use."""
