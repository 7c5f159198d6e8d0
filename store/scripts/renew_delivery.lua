-- renew_delivery: renew the lease of an agent.
-- An ended lease is lost, even if no other claim has it: another driver may have delivered meanwhile.
-- KEYS  root of the sandboxes
-- ARGV  entry:text  token:text of the lease  lease:int ms
-- Returns  flag: false if the lease is lost, or the delivery is no longer due
-- Cost  O(log d): d deliveries in the due index
-- Idempotent  by token: a repeat prolongs the same lease
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _delivery.lua
if redis.call('GET', root .. ':agent:' .. sandbox_of(entry)) ~= token then return 0 end
if not redis.call('ZSCORE', root .. ':deliveries', entry) then return 0 end
return (take(entry, token, lease))
