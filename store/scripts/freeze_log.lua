-- freeze_log: drop the keys of a log that lies whole in an object, unless the conversation has changed since. Its text
-- stays, compressed, so that a search over all messages needs no object. Nothing that clients see changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 name of the object   2 incarnation   3 revision   4 latest time by Redis' clock, µs: the object may be gone later
--       then the frame of each text chunk in order ("" there is no such chunk)
-- Returns  1 | 0: the conversation has changed, no longer rests, is gone, or it is too late
-- Cost  O(q): q (kind, source) pairs that occur; memory is freed in the background
-- Idempotent  by the object's name
-- include: _clock.lua
local root = KEYS[1]
-- include: _freeze.lua
local FIRST = 5
local state = redis.call('HMGET', root, 'incarnation', 'revision', 'execution_status', 'cold', 'delivery_id')
if state[4] == ARGV[1] then return 1 end
if state[1] ~= ARGV[2] or state[2] ~= ARGV[3] or tonumber(now) > tonumber(ARGV[4]) then return 0 end
if not rests(state[3], state[4], state[5]) then return 0 end
for _, part in ipairs(moved_parts()) do redis.call('UNLINK', root .. part) end
for i = FIRST, #ARGV do
  if ARGV[i] ~= '' then redis.call('SET', root .. ':text:' .. string.format('%d', i - FIRST), ARGV[i]) end
end
redis.call('HSET', root, 'cold', ARGV[1])
return 1
