-- renew_notification: renew the lease of a target.
-- KEYS  root of the notifications
-- ARGV  target:text  token:text of the lease  span:int ms of the lease
-- Returns  flag: false if another supervisor has the lease, or it was closed
-- Cost  O(1)
-- Idempotent  by the token
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _clock.lua
if redis.call('HGET', root .. ':state:' .. target, 'token') ~= token then return 0 end
redis.call('HSET', root .. ':state:' .. target, 'lease', string.format('%.0f', now + span * 1000))
return 1
