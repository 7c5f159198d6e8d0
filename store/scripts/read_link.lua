-- read_link: the use of a one-time link, and the time.
-- KEYS  1 root of the approvals
-- ARGV  1 identity of the link
-- Returns  {now, µs as digits, the decision that it was used for, µs as digits when; both empty if it was not used}
-- Cost  O(1)
-- Idempotent  reads only
-- include: _clock.lua
local use = redis.call('HMGET', root .. ':link:' .. ARGV[1], 'decision', 'at')
return {now, use[1] or '', use[2] or ''}
