-- close_copy: note that a copy into an id is made no more: its writer has failed.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 fork id
-- Returns  1: a deletion has ended it | 0
-- Cost  O(1)
-- Idempotent  a repeat finds it closed
-- Kept  not proven: it ends by itself
redis.call('HDEL', root .. ':copies', ARGV[1])
return redis.call('EXISTS', root .. ':ended:' .. ARGV[1])
