-- close_go_ahead: have something that was allowed be looked at again later, because its agent works; or never.
-- KEYS  root of the sandboxes
-- ARGV  member:text "ID NAME:PORT"  id:text of the approval: a later one of the same name stays  again_in:int µs; 0: never
-- Returns  missing
-- Cost  O(log g): g approvals that are not looked into yet
-- Idempotent  a repeat postpones it a little more
-- include: _clock.lua
local stored = redis.call('HGET', root .. ':go_aheads', member)
local left = stored and cjson.decode(stored)
if not left or left.id ~= id then return false end
if again_in == 0 then
  redis.call('HDEL', root .. ':go_aheads', member)
  redis.call('ZREM', root .. ':go_aheads_due', member)
  return false
end
left.waited = '1'
redis.call('HSET', root .. ':go_aheads', member, cjson.encode(left))
redis.call('ZADD', root .. ':go_aheads_due', now + again_in, member)
return false
