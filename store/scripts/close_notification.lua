-- close_notification: record the outcome of an attempt, and end the lease of its target.
-- A message that was sent or dropped is removed from the queue.
-- KEYS  root of the notifications
-- ARGV  target:text  token:text of the lease  place:text id in the queue
--       outcome:text sent, failed, gone (the target refuses further messages) or lost (the message cannot be sent)
--       reason:text why it failed  again:int ms until the next attempt  kept:int ms after which a message is dropped
-- Returns  "sent" | "failed" | "given up" | "gone" | "late": another supervisor has the lease, or it was closed
-- Cost  O(1)
-- Idempotent  by the token: the first call ends the lease
-- include: _clock.lua
local function take_out()
  redis.call('XDEL', root .. ':queue:' .. target, place)
  if redis.call('XLEN', root .. ':queue:' .. target) == 0 then redis.call('SREM', root .. ':ringing', target) end
end
if redis.call('HGET', root .. ':state:' .. target, 'token') ~= token then return 'late' end
redis.call('HDEL', root .. ':state:' .. target, 'token', 'lease')
if outcome == 'sent' then
  take_out()
  redis.call('HINCRBY', root .. ':state:' .. target, 'sent', 1)
  redis.call('HSET', root .. ':state:' .. target, 'sent_at', now)
  redis.call('HDEL', root .. ':state:' .. target, 'tries', 'next_at')
  return 'sent'
end
redis.call('HSET', root .. ':state:' .. target, 'failed_at', now, 'failure', reason)
if outcome == 'gone' then
  redis.call('HSET', root .. ':state:' .. target, 'disabled_at', now)
  return 'gone'
end
if outcome == 'lost' or string.match(place, '^%d+') + kept <= now / 1000 then
  take_out()
  redis.call('HINCRBY', root .. ':state:' .. target, 'given_up', 1)
  redis.call('HDEL', root .. ':state:' .. target, 'tries', 'next_at')
  return 'given up'
end
redis.call('HINCRBY', root .. ':state:' .. target, 'tries', 1)
redis.call('HSET', root .. ':state:' .. target, 'next_at', string.format('%.0f', now + again * 1000))
return 'failed'
