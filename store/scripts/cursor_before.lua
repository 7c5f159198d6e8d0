-- cursor_before: the block of the log before which every event is earlier than a time.
-- KEYS  root of the conversation
-- ARGV  since:micros
-- Returns  int: number of the block | missing: no event is of that time or later
-- Cost  O(log b): b blocks of the log
-- Idempotent  reads only
-- Log  needed
return redis.call('ZRANGEBYSCORE', root .. ':peaks', since, '+inf', 'LIMIT', 0, 1)[1] or false
