-- renew_notification: renew the lease of a target.
-- KEYS  1 root of the notifications
-- ARGV  1 id of the target   2 token of the lease   3 its length, ms
-- Returns  1 | 0: the lease is another supervisor's, or was closed
-- Cost  O(1)
-- Idempotent  by the token
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _clock.lua
local target, token, span = unpack(ARGV)
if redis.call('HGET', root .. ':state:' .. target, 'token') ~= token then return 0 end
redis.call('HSET', root .. ':state:' .. target, 'lease', string.format('%.0f', now + span * 1000))
return 1
