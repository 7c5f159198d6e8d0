-- find_events: return which events a log has, without their bytes.
-- KEYS  root of the conversation
-- ARGV  ids:text* at most 4,000
-- Returns  int?*: the seqs in the order of the ids, nil for an unknown one | missing: no such conversation
-- Cost  O(i): i ids
-- Idempotent  reads only
-- Log  needed
-- include: _ids.lua
local last = redis.call('HGET', root, 'seq')
if not last then return false end
local seqs, found = seqs_of(ids, last), {}
for i, id in ipairs(ids) do found[i] = seqs[id] or false end
return found
