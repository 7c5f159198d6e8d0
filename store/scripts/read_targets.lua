-- read_targets: return the queue of every target that a supervisor has had.
-- KEYS  root of the notifications
-- ARGV  none
-- Returns  (id:text name:text queued:int oldest:text? state:hash)*: id of its oldest message
-- Cost  O(t): t targets
-- Idempotent  reads only
local found = {}
local known = redis.call('HGETALL', root .. ':targets')
for i = 1, #known, 2 do
  local oldest = redis.call('XRANGE', root .. ':queue:' .. known[i], '-', '+', 'COUNT', 1)[1]
  found[#found + 1], found[#found + 2] = known[i], known[i + 1]
  found[#found + 1] = redis.call('XLEN', root .. ':queue:' .. known[i])
  found[#found + 1] = oldest ~= nil and oldest[1]
  found[#found + 1] = redis.call('HGETALL', root .. ':state:' .. known[i])
end
return found
