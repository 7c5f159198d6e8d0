-- close_delivery: end an attempt: release the lease of the agent, and make the delivery due again or delete it.
-- Another holder's lease, and a missing entry, stay as they are.
-- KEYS  root of the sandboxes
-- ARGV  entry:words  token:text of the lease
--       again:int? ms until the delivery is due again; absent: it is settled, or was not decided
-- Returns  flag: false if the lease was lost
-- Cost  O(log d): d deliveries in the due index
-- Idempotent  by token: a repeat finds no lease of its own
-- Full  goes on: the agent has received the command
-- include: _delivery.lua
if not again then
  redis.call('ZREM', root .. ':deliveries', entry)
  redis.call('HDEL', root .. ':tried', entry)
else
  redis.call('ZADD', root .. ':deliveries', 'XX', string.format('%.0f', now + again * 1000), entry)
end
local key = root .. ':agent:' .. sandbox_of(entry)
if redis.call('GET', key) ~= token then return 0 end
return redis.call('DEL', key)
