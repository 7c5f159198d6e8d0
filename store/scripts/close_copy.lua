-- close_copy: note that a copy into an id is made no more: its writer has failed.
-- KEYS  root of the conversation
-- ARGV  fork:text
-- Returns  flag: whether a deletion has ended it
-- Cost  O(1)
-- Idempotent  a repeat finds it closed
-- Kept  not proven: it ends by itself
redis.call('HDEL', root .. ':copies', fork)
return redis.call('EXISTS', root .. ':ended:' .. fork)
