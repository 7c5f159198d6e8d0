-- claim_go_ahead: take the lease of something that was allowed, and that nobody has looked at for a while: whether its agent
-- is to be told.
-- KEYS  root of the sandboxes
-- ARGV  span:int of the lease, µs
-- Returns  (member:text entry:bytes now:micros) | missing: nothing is due
-- Cost  O(log g): g approvals that are not looked into yet
-- Idempotent  no: a repeat claims another one; the first is due again when its lease ends
-- include: _clock.lua
local member = redis.call('ZRANGEBYSCORE', root .. ':go_aheads_due', '-inf', now, 'LIMIT', 0, 1)[1]
if not member then return false end
local stored = redis.call('HGET', root .. ':go_aheads', member)
if not stored then
  redis.call('ZREM', root .. ':go_aheads_due', member)
  return false
end
redis.call('ZADD', root .. ':go_aheads_due', now + span, member)
return {member, stored, now}
