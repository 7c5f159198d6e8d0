-- set_aside: exclude a conversation from freezing for a time.
-- Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  span:int µs
-- Returns  missing
-- Cost  O(1)
-- Idempotent  a repeat restarts the time
-- Kept  not proven: a lost step is repeated
-- include: _clock.lua
if redis.call('EXISTS', root) == 0 then return false end
redis.call('HSET', root, 'aside_until', string.format('%.0f', now + span))
return false
