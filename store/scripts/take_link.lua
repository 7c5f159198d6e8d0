-- take_link: use a one-time link for a decision.
-- Only the first use counts. It is stored a minute longer than the link.
-- KEYS  root of the approvals
-- ARGV  id:text of the link  ends:micros when the link expires  decision:text
-- Returns  "first" "again" "other"(decision:text at:micros): the decision of the first use, and its time
--          | "past": it has expired
-- Cost  O(1)
-- Idempotent  by decision: a repeat returns "again" and writes nothing
-- include: _clock.lua
local key = root .. ':link:' .. id
if tonumber(ends) <= tonumber(now) then return 'past' end
if redis.call('HSETNX', key, 'decision', decision) == 1 then
  redis.call('HSET', key, 'at', now)
  redis.call('PEXPIREAT', key, string.format('%.0f', math.ceil(ends / 1000) + 60000))
  return {'first', decision, now}
end
local use = redis.call('HMGET', key, 'decision', 'at')
return {use[1] == decision and 'again' or 'other', use[1], use[2]}
