-- thaw_log: bring back the keys of a cold conversation's log. Nothing that clients see changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 name of the object that they come from   2 µs for which it is set aside
--       then two per key: its part of the name, ":log" …, its DUMP
-- Returns  1 | 0: it is not cold, or under another name
-- Cost  O(n log n): n events
-- Idempotent  by the object's name
-- Log  guarded here
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- Brings  bytes
-- include: _clock.lua
local root = KEYS[1]
if redis.call('HGET', root, 'cold') ~= ARGV[1] then return 0 end
for i = 3, #ARGV, 2 do redis.call('RESTORE', root .. ARGV[i], 0, ARGV[i + 1], 'REPLACE') end
redis.call('HDEL', root, 'cold')
redis.call('HSET', root, 'aside_until', string.format('%.0f', now + ARGV[2]))
return 1
