-- set_aside: do not freeze a conversation for a time. Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  span:int that time, µs
-- Returns  missing
-- Cost  O(1)
-- Idempotent  a repeat begins the time again
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- include: _clock.lua
if redis.call('EXISTS', root) == 0 then return false end
redis.call('HSET', root, 'aside_until', string.format('%.0f', now + span))
return false
