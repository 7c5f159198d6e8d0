-- read_link: return the use of a one-time link, and the time.
-- KEYS  root of the approvals
-- ARGV  id:text of the link
-- Returns  (now:micros use:hash): the use is empty if the link was not used
-- Cost  O(1)
-- Idempotent  reads only
-- include: _clock.lua
return {now, redis.call('HGETALL', root .. ':link:' .. id)}
