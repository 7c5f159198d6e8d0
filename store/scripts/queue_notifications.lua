-- queue_notifications: queue messages for every target, each message once per id. A full queue drops its oldest message.
-- KEYS  root of the notifications
-- ARGV  most:int messages of a queue  most_marks:int  names:text ids of the targets, joined by commas
--       words:words* of each message: its id, W3C traceparent ("" none), its body for each target, sealed
-- Returns  int*: messages that were dropped from the queue of each target
-- Cost  O(m t + m log k): m messages, t targets, k marks
-- Idempotent  by the ids of the messages: each leaves a mark
-- Brings  bytes
-- include: _clock.lua
local targets, dropped = {}, {}
for target in string.gmatch(names, '[^,]+') do
  targets[#targets + 1] = target
  dropped[#targets] = 0
end
for i = 1, #words, 2 + #targets do
  if redis.call('ZADD', root .. ':seen', 'NX', now, words[i]) == 1 then
    for n, target in ipairs(targets) do
      redis.call('XADD', root .. ':queue:' .. target, '*', 'id', words[i], 'body', words[i + 1 + n],
        'trace', words[i + 1])
      local over = redis.call('XTRIM', root .. ':queue:' .. target, 'MAXLEN', most)
      if over > 0 then redis.call('HINCRBY', root .. ':state:' .. target, 'dropped', over) end
      dropped[n] = dropped[n] + over
    end
  end
end
redis.call('ZREMRANGEBYRANK', root .. ':seen', 0, -most_marks - 1)
return dropped
