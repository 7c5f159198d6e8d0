-- claim_go_ahead: claim a due go-ahead, to find out whether to notify its agent.
-- KEYS  root of the sandboxes
-- ARGV  span:int of the lease, µs
-- Returns  (member:text entry:bytes now:micros) | missing: none is due
-- Cost  O(log g): g pending go-ahead records
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
