-- renew_delivery: renew the lease of an agent. A lease that has ended is lost, also while no other claim has it: another
-- driver may have delivered meanwhile.
-- KEYS  root of the sandboxes
-- ARGV  entry:text  token:text of the lease  lease:int ms
-- Returns  flag: false where the lease is lost, or the delivery is no longer due
-- Cost  O(log d): d deliveries that are due or will be
-- Idempotent  by token: a repeat prolongs the same lease
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _delivery.lua
if redis.call('GET', root .. ':agent:' .. sandbox_of(entry)) ~= token then return 0 end
if not redis.call('ZSCORE', root .. ':deliveries', entry) then return 0 end
return (take(entry, token, lease))
