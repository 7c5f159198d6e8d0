-- pack_ids: move a part of the ids that an older release wrote into the buckets of `_ids.lua`.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 cursor of the scan, "0" to begin   2 about how many ids to move
-- Returns  {cursor of the next call (0 when all were seen), number of ids moved}
--          | false: no such conversation, or it is cold
-- Cost  O(i): i ids moved, ARGV 2 or few more
-- Idempotent  a repeat finds them moved
local root = KEYS[1]
-- include: _enter_ids.lua
local last, cold = unpack(redis.call('HMGET', root, 'seq', 'cold'))
if not last or cold then return false end
local following, stored = unpack(redis.call('HSCAN', root .. ':ids', ARGV[1], 'COUNT', ARGV[2]))
local words, seen = {}, {}
for i = 1, #stored, 2 do
  if packed(stored[i]) and not seen[stored[i]] then
    words[#words + 1], words[#words + 2], seen[stored[i]] = stored[i], stored[i + 1], true
    redis.call('HDEL', root .. ':ids', stored[i])
  end
end
enter_ids(words, last, last)
return {following, #words / 2}
