-- cursor_before: the block of the log before which every event is earlier than a time.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 time, µs
-- Returns  number of the block | false: no event is of that time or later
-- Cost  O(log b): b blocks of the log
-- Idempotent  reads only
-- Log  needed
local root = KEYS[1]
return redis.call('ZRANGEBYSCORE', root .. ':peaks', ARGV[1], '+inf', 'LIMIT', 0, 1)[1] or false
