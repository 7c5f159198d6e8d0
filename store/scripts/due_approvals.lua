-- due_approvals: conversations with an action whose deadline has passed, as many as asked for, from a random one on.
-- KEYS  1 approvals root, {approvals}
-- ARGV  1 most conversations   2 a random number from 0 to below 1
-- Returns  {conversation id, …}
-- Cost  O(log c + m): c conversations that have a deadline, m those returned
-- Idempotent  reads only
-- include: _clock.lua
local most = tonumber(ARGV[1])
local beyond = redis.call('ZCOUNT', root .. ':due', '-inf', now) - most
local first = beyond > 0 and math.floor((beyond + 1) * tonumber(ARGV[2])) or 0
return redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', now, 'LIMIT', first, most)
