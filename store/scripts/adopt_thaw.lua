-- adopt_thaw: adopt the log that thaw_piece has staged.
-- Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  name:text of its object  span:int µs for which it is not frozen again  pieces:int
-- Returns  "adopted" | "torn": it has another number of events than the log, and is dropped
--          | "expired": some of it has expired | missing: the conversation is not cold, or is under another name
-- Cost  O(k): k keys of the log
-- Idempotent  by the object's name
-- Log  guarded here
-- Kept  not proven: a lost step is repeated
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
