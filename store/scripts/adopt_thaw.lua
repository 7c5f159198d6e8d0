-- adopt_thaw: make the log current that thaw_piece has put aside. Nothing that clients see changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 name of the object that it comes from   2 µs for which it is set aside   3 number of its pieces
-- Returns  1 | 0: it has not as many events as the log, and is dropped | -1: it is not all aside: it has ended meanwhile
--          | false: the conversation is not cold, or under another name
-- Cost  O(k): k keys of the log
-- Idempotent  by the object's name
-- Log  guarded here
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- include: _clock.lua
-- include: _freeze.lua
local cold, last_chunk, seq = unpack(redis.call('HMGET', root, 'cold', 'text_chunk', 'seq'))
if cold ~= ARGV[1] then return false end
local aside, parts = ':thaw:' .. ARGV[1], all_parts(last_chunk)
if tonumber(redis.call('GET', root .. aside) or 0) ~= tonumber(ARGV[3]) then return -1 end
redis.call('UNLINK', root .. aside)
if redis.call('LLEN', root .. aside .. ':log') ~= tonumber(seq) then
  for _, part in ipairs(parts) do redis.call('UNLINK', root .. aside .. part) end
  return 0
end
for _, part in ipairs(parts) do
  redis.call('UNLINK', root .. part)
  if redis.call('EXISTS', root .. aside .. part) == 1 then
    redis.call('RENAME', root .. aside .. part, root .. part)
    redis.call('PERSIST', root .. part)
  end
end
redis.call('HDEL', root, 'cold')
redis.call('HSET', root, 'aside_until', string.format('%.0f', now + ARGV[2]))
return 1
