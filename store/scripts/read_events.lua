-- read_events: return a page of events by seq.
-- KEYS  root of the conversation
-- ARGV  most_bytes:int of a page, which ends with the first event that exceeds them  seqs:int*
-- Returns  bytes*: the events of the first seqs, as stored | missing: no such conversation, or no such event
-- Cost  O(m n'): m events, n' list nodes between them and the nearer end of the log
-- Idempotent  reads only
-- Log  needed
-- include: _read.lua
return events_of(seqs, most_bytes)
