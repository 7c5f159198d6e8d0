-- begin_copy: begin the copy of a future conversation.
-- A deletion of the conversation's id ends it until it is adopted.
-- KEYS  root of the conversation
-- ARGV  fork:text  utc:text now, with Z  seconds:int until the copy expires
--       sandbox:text whose agent server makes its own copy, "" none
-- Returns  flag: false if a deletion has ended it
-- Cost  O(c): c unfinished copies into this id
-- Idempotent  by fork id: a repeat finds it begun
-- include: _clock.lua
if redis.call('EXISTS', root .. ':ended:' .. fork) == 1 then return 0 end
local copies = redis.call('HGETALL', root .. ':copies')
for i = 1, #copies, 2 do
  if tonumber(now) > tonumber(string.match(copies[i + 1], '^%d+')) then redis.call('HDEL', root .. ':copies', copies[i]) end
end
redis.call('HSET', root .. ':copies', fork, string.format('%.0f %s', now + seconds * 1000000, sandbox))
redis.call('EXPIRE', root .. ':copies', seconds)
local key = root .. ':fork:' .. fork
if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', key, 'incarnation', fork, 'execution_status', 'idle', 'held', '', 'text_chunk', 0, 'seq', 0, 'revision', 0, 'groups', '',
    'created_at', utc, 'updated_at', utc)
  redis.call('EXPIRE', key, seconds)
end
return 1
