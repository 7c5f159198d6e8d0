-- postpone_queue: renew the lease of a queue, or make it due again, and note what its driver has done.
-- KEYS  1 root of the start tasks
-- ARGV  1 conversation id   2 lease id   3 µs from now   then name, value, … of its state ("tried", "": it only waits)
-- Returns  1 | 0: the lease is another driver's, or the queue is gone
-- Cost  O(log q): q queues
-- Idempotent  a repeat prolongs it a little more
-- include: _queue.lua
local conversation, lease, span = unpack(ARGV)
if state_of(conversation, 'lease') ~= lease then return 0 end
if #ARGV > 3 then redis.call('HSET', root .. ':queued:' .. conversation, unpack(ARGV, 4)) end
redis.call('ZADD', root .. ':queues', now + span, conversation)
return 1
