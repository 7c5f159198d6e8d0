-- read_events: events by seq, as many as fit into a page.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 most bytes of a page: the first event that exceeds them is returned too, and is the last one   2… seqs
-- Returns  {event as kept, …} of the first seqs, in their order | false: no such conversation, or no such event
-- Cost  O(m n'): m events, n' list nodes between them and the nearer end of the log
-- Idempotent  reads only
-- Log  needed
local root = KEYS[1]
-- include: _read.lua
local seqs = {}
for i = 2, #ARGV do seqs[i - 1] = tonumber(ARGV[i]) end
return events_of(seqs, tonumber(ARGV[1]))
