-- read_link: the use of a one-time link, and the time.
-- KEYS  root of the approvals
-- ARGV  id:text of the link
-- Returns  (now:micros decision:text at:micros?): the decision that it was used for, and when; "" and absent if it was not
-- Cost  O(1)
-- Idempotent  reads only
-- include: _clock.lua
local use = redis.call('HMGET', root .. ':link:' .. id, 'decision', 'at')
return {now, use[1] or '', use[2]}
