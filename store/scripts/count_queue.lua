-- count_queue: the number of messages that wait for a conversation.
-- KEYS  1 root of the start tasks
-- ARGV  1 conversation id
-- Returns  number
-- Cost  O(1)
-- Idempotent  reads only
return redis.call('LLEN', root .. ':queue:' .. ARGV[1])
