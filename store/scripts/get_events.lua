-- get_events: events by id.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 most bytes of all events together   2… event ids
-- Returns  {event as kept | false: unknown, …} in the order of the ids | how many of their bytes do not fit | false: no such conversation
-- Cost  O(i n'): i ids, n' list nodes between the event and the nearer end of the log
-- Idempotent  reads only
-- Log  needed
local root = KEYS[1]
-- include: _frame.lua
-- include: _ids.lua
local last = redis.call('HGET', root, 'seq')
if not last then return false end
local events, size, seqs = {}, 0, seqs_of({unpack(ARGV, 2)}, last)
for i = 2, #ARGV do
  local seq = seqs[ARGV[i]]
  local bytes = seq ~= nil and redis.call('LINDEX', root .. ':log', seq - 1)
  size = size + (bytes and size_of(bytes) or 0)
  if size > tonumber(ARGV[1]) then return size - ARGV[1] end
  events[i - 1] = bytes
end
return events
