-- get_events: events by id.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1… event ids
-- Returns  {bytes | false: unknown, …} in the order of the ids | false: no such conversation
-- Cost  O(i n'): i ids, n' list nodes between the event and the nearer end of the log
-- Idempotent  reads only
local root = KEYS[1]
if redis.call('EXISTS', root) == 0 then return false end
local events = {}
for i, id in ipairs(ARGV) do
  local seq = redis.call('HGET', root .. ':ids', id)
  events[i] = seq and redis.call('LINDEX', root .. ':log', seq - 1)
end
return events
