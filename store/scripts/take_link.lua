-- take_link: use a one-time link for a decision. The first use alone counts; it is kept a minute longer than the link.
-- KEYS  1 root of the approvals
-- ARGV  1 identity of the link   2 µs at which the link expires   3 the decision
-- Returns  {"first" | "again" | "other" | "past", the decision that the link was used for, µs as digits when; both "" if
--          it was not used}
-- Cost  O(1)
-- Idempotent  by decision: a repeat returns "again" and writes nothing
-- include: _clock.lua
local key = root .. ':link:' .. ARGV[1]
if tonumber(ARGV[2]) <= tonumber(now) then return {'past', '', ''} end
if redis.call('HSETNX', key, 'decision', ARGV[3]) == 1 then
  redis.call('HSET', key, 'at', now)
  redis.call('PEXPIREAT', key, string.format('%.0f', math.ceil(ARGV[2] / 1000) + 60000))
  return {'first', ARGV[3], now}
end
local use = redis.call('HMGET', key, 'decision', 'at')
return {use[1] == ARGV[3] and 'again' or 'other', use[1], use[2]}
