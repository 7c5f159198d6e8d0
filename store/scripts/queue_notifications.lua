-- queue_notifications: queue messages for every target, each message once per id. A full queue drops its oldest message.
-- KEYS  1 root of the notifications
-- ARGV  1 most messages of a queue   2 most marks   3 ids of the targets, joined by commas
--       then of each message: its id, W3C traceparent ("" none), its body for each target, sealed
-- Returns  {number of messages that were dropped from the queue of each target, …}
-- Cost  O(m t + m log k): m messages, t targets, k marks
-- Idempotent  by the ids of the messages: each leaves a mark
-- Brings  bytes
-- include: _clock.lua
local most, most_marks, targets = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
local dropped = {}
for target in string.gmatch(ARGV[3], '[^,]+') do
  targets[#targets + 1] = target
  dropped[#targets] = 0
end
for i = 4, #ARGV, 2 + #targets do
  if redis.call('ZADD', root .. ':seen', 'NX', now, ARGV[i]) == 1 then
    for n, target in ipairs(targets) do
      redis.call('XADD', root .. ':queue:' .. target, '*', 'id', ARGV[i], 'body', ARGV[i + 1 + n],
        'trace', ARGV[i + 1])
      local over = redis.call('XTRIM', root .. ':queue:' .. target, 'MAXLEN', most)
      if over > 0 then redis.call('HINCRBY', root .. ':state:' .. target, 'dropped', over) end
      dropped[n] = dropped[n] + over
    end
  end
end
redis.call('ZREMRANGEBYRANK', root .. ':seen', 0, -most_marks - 1)
return dropped
