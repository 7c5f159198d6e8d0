-- cursor_before: return the first block of the log with an event at or after a time.
-- KEYS  root of the conversation
-- ARGV  since:micros
-- Returns  int: number of the block | missing: no such event
-- Cost  O(log b): b blocks of the log
-- Idempotent  reads only
-- Log  needed
return redis.call('ZRANGEBYSCORE', root .. ':peaks', since, '+inf', 'LIMIT', 0, 1)[1] or false
