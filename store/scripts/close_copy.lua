-- close_copy: record that a copy into an id has failed.
-- KEYS  root of the conversation
-- ARGV  fork:text
-- Returns  flag: whether a deletion has ended it
-- Cost  O(1)
-- Idempotent  a repeat finds it closed
-- Kept  not proven: it expires
redis.call('HDEL', root .. ':copies', fork)
return redis.call('EXISTS', root .. ':ended:' .. fork)
