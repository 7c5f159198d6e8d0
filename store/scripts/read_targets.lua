-- read_targets: the queue of every target that a supervisor has had.
-- KEYS  1 root of the notifications
-- ARGV  none
-- Returns  {{id, name, number of messages, place of the oldest (empty: none), its fields and values …}, …}
-- Cost  O(t): t targets
-- Idempotent  reads only
local found = {}
local known = redis.call('HGETALL', root .. ':targets')
for i = 1, #known, 2 do
  local oldest = redis.call('XRANGE', root .. ':queue:' .. known[i], '-', '+', 'COUNT', 1)[1]
  found[#found + 1] = {known[i], known[i + 1], redis.call('XLEN', root .. ':queue:' .. known[i]),
    oldest and oldest[1] or '', redis.call('HGETALL', root .. ':state:' .. known[i])}
end
return found
