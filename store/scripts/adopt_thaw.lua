-- adopt_thaw: make the log current that thaw_piece has put aside. Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  name:text of the object that it comes from  span:int for which it is set aside, µs  pieces:int
-- Returns  "adopted" | "torn": it has not as many events as the log, and is dropped
--          | "expired": it is not all aside, as it has ended meanwhile
--          | missing: the conversation is not cold, or under another name
-- Cost  O(k): k keys of the log
-- Idempotent  by the object's name
-- Log  guarded here
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- include: _clock.lua
-- include: _freeze.lua
local cold, last_chunk, seq = unpack(redis.call('HMGET', root, 'cold', 'text_chunk', 'seq'))
if cold ~= name then return false end
local aside, parts = ':thaw:' .. name, all_parts(last_chunk)
if tonumber(redis.call('GET', root .. aside) or 0) ~= pieces then return 'expired' end
redis.call('UNLINK', root .. aside)
if redis.call('LLEN', root .. aside .. ':log') ~= tonumber(seq) then
  for _, part in ipairs(parts) do redis.call('UNLINK', root .. aside .. part) end
  return 'torn'
end
for _, part in ipairs(parts) do
  redis.call('UNLINK', root .. part)
  if redis.call('EXISTS', root .. aside .. part) == 1 then
    redis.call('RENAME', root .. aside .. part, root .. part)
    redis.call('PERSIST', root .. part)
  end
end
redis.call('HDEL', root, 'cold', 'cold_digest')
redis.call('HSET', root, 'aside_until', string.format('%.0f', now + span))
return 'adopted'
