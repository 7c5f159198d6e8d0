-- get_events: return events by id.
-- KEYS  root of the conversation
-- ARGV  most_bytes:int of all events together  ids:text*
-- Returns  "found"(events:bytes?*): as stored, in the order of the ids, nil for an unknown one | "too_long"
--          | missing: no such conversation
-- Cost  O(i n'): i ids, n' list nodes from the nearer end of the log
-- Idempotent  reads only
-- Log  needed
-- include: _frame.lua
-- include: _ids.lua
local last = redis.call('HGET', root, 'seq')
if not last then return false end
local found, size, seqs = {'found'}, 0, seqs_of(ids, last)
for i, id in ipairs(ids) do
  local seq = seqs[id]
  local bytes = seq ~= nil and redis.call('LINDEX', root .. ':log', seq - 1)
  size = size + (bytes and size_of(bytes) or 0)
  if size > most_bytes then return 'too_long' end
  found[i + 1] = bytes
end
return found
