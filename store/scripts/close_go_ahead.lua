-- close_go_ahead: make a go-ahead due again later, because its agent is working, or delete it.
-- KEYS  root of the sandboxes
-- ARGV  member:text "ID NAME:PORT"  id:text of the approval: a later one of the same name stays
--       again_in:int µs; 0: delete it
-- Returns  missing
-- Cost  O(log g): g pending go-ahead records
-- Idempotent  a repeat postpones it a bit more
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
