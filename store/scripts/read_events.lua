-- read_events: events by seq, as many as fit into a page.
-- KEYS  root of the conversation
-- ARGV  most_bytes:int of a page: the first event that exceeds them is returned too, as the last one  seqs:int*
-- Returns  bytes*: the events of the first seqs, as kept | missing: no such conversation, or no such event
-- Cost  O(m n'): m events, n' list nodes between them and the nearer end of the log
-- Idempotent  reads only
-- Log  needed
-- include: _read.lua
return events_of(seqs, most_bytes)
