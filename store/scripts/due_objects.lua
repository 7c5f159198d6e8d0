-- due_objects: return the objects that are due for a check.
-- KEYS  root of the register
-- ARGV  most:int names
-- Returns  (name:text pieces:int)*: the longest overdue first
-- Cost  O(log m + n): m objects, n names
-- Idempotent  reads only
-- include: _clock.lua
local reply = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', root .. ':objects', '-inf', now, 'LIMIT', 0, most)) do
  reply[#reply + 1], reply[#reply + 2] = name, tonumber(redis.call('HGET', root .. ':pieces', name) or 0)
end
return reply
