-- queue_notifications: queue messages for every target, each message once per id.
-- A full queue drops its oldest message.
-- KEYS  root of the notifications
-- ARGV  most:int messages of a target's queue  most_marks:int  names:text ids of the targets, joined by commas
--       devices:text ids of devices, likewise  most_rings:int messages of a device's queue
--       words:words* of each message: its id, W3C traceparent ("" none), its sealed body for each target, then for each
--       device ("" none)
-- Returns  int*: number of messages dropped from the queue of each target
-- Cost  O(m t + m log k): m messages, t targets and devices, k marks
-- Idempotent  by the ids of the messages: each leaves a mark
-- Brings  bytes
-- include: _clock.lua
local targets, dropped, known = {}, {}, {}
for target in string.gmatch(names, '[^,]+') do
  targets[#targets + 1] = target
  dropped[#targets] = 0
end
for device in string.gmatch(devices, '[^,]+') do
  targets[#targets + 1] = device
  known[#targets] = redis.call('ZSCORE', root .. ':devices', device)
end
for i = 1, #words, 2 + #targets do
  if redis.call('ZADD', root .. ':seen', 'NX', now, words[i]) == 1 then
    for n, target in ipairs(targets) do
      local body, is_device = words[i + 1 + n], n > #dropped
      if not is_device or (known[n] and body ~= '') then
        redis.call('XADD', root .. ':queue:' .. target, '*', 'id', words[i], 'body', body, 'trace', words[i + 1])
        local over = redis.call('XTRIM', root .. ':queue:' .. target, 'MAXLEN', is_device and most_rings or most)
        if over > 0 then redis.call('HINCRBY', root .. ':state:' .. target, 'dropped', over) end
        if is_device then
          redis.call('SADD', root .. ':ringing', target)
        else
          dropped[n] = dropped[n] + over
        end
      end
    end
  end
end
redis.call('ZREMRANGEBYRANK', root .. ':seen', 0, -most_marks - 1)
return dropped
