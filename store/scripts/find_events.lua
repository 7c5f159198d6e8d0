-- find_events: which events a log has, without their bytes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  event ids, at most 4,000
-- Returns  {seq | false: unknown, …} in the order of the ids | false: no such conversation
-- Cost  O(i): i ids
-- Idempotent  reads only
-- Log  needed
local root = KEYS[1]
-- include: _ids.lua
local last = redis.call('HGET', root, 'seq')
if not last then return false end
local seqs, found = seqs_of(ARGV, last), {}
for i, id in ipairs(ARGV) do found[i] = seqs[id] or false end
return found
