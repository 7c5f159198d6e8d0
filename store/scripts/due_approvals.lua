-- due_approvals: return conversations with an action whose deadline has passed, from a random one on.
-- KEYS  root of the approvals
-- ARGV  most:int conversations  random:text number from 0 to below 1
-- Returns  text*: conversation ids
-- Cost  O(log c + m): c conversations with a deadline, m results
-- Idempotent  reads only
-- include: _clock.lua
local beyond = redis.call('ZCOUNT', root .. ':due', '-inf', now) - most
local first = beyond > 0 and math.floor((beyond + 1) * tonumber(random)) or 0
return redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', now, 'LIMIT', first, most)
