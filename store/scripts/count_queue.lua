-- count_queue: return the number of messages that wait for a conversation.
-- KEYS  root of the start tasks
-- ARGV  conversation:text
-- Returns  int
-- Cost  O(1)
-- Idempotent  reads only
return redis.call('LLEN', root .. ':queue:' .. conversation)
