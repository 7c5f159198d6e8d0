-- claim_notification: take the lease of a target whose oldest message is due.
-- KEYS  1 root of the notifications
-- ARGV  1 id of the target   2 token of the lease   3 its length, ms
-- Returns  {place of the message in the queue, its id, its body, sealed, now in µs, failed tries before,
--          W3C traceparent, empty where it has none}
--          | false: none is due, another supervisor has the lease, or the target rejects further messages
-- Cost  O(1)
-- Idempotent  by the token
-- include: _clock.lua
local target, token, span = unpack(ARGV)
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
