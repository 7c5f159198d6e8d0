-- claim_notification: take the lease of a target whose oldest message is due.
-- KEYS  root of the notifications
-- ARGV  target:text  token:text of the lease  span:int its length, ms
-- Returns  (place:text id:text body:bytes at:micros tries:int trace:text): of the message in the queue; its body is sealed;
--          the time is now; tries that failed before; W3C traceparent, "" none
--          | missing: none is due, another supervisor has the lease, or the target rejects further messages
-- Cost  O(1)
-- Idempotent  by the token
-- include: _clock.lua
local holder, lease, due, disabled, tries, failed_at = unpack(redis.call('HMGET', root .. ':state:' .. target, 'token', 'lease',
  'next_at', 'disabled_at', 'tries', 'failed_at'))
-- a failure that has yet to come, and a lease that is longer than one: the clock stepped back
if disabled or (due and tonumber(due) > tonumber(now) and tonumber(failed_at or 0) <= tonumber(now)) then return false end
local left = holder and holder ~= token and lease - now or 0
if left > 0 and left <= span * 1000 then return false end
local oldest = redis.call('XRANGE', root .. ':queue:' .. target, '-', '+', 'COUNT', 1)[1]
if not oldest then return false end
redis.call('HSET', root .. ':state:' .. target, 'token', token, 'lease', string.format('%.0f', now + span * 1000))
return {oldest[1], oldest[2][2], oldest[2][4], now, tries or '0', oldest[2][6] or ''}
