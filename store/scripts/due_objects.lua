-- due_objects: the objects that are to be looked at.
-- KEYS  1 root of the register
-- ARGV  1 most names
-- Returns  {name, number of its pieces, …}, the one that is due for longest first
-- Cost  O(log m + n): m objects, n names
-- Idempotent  reads only
-- include: _clock.lua
local reply = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', root .. ':objects', '-inf', now, 'LIMIT', 0, ARGV[1])) do
  reply[#reply + 1], reply[#reply + 2] = name, tonumber(redis.call('HGET', root .. ':pieces', name) or 0)
end
return reply
