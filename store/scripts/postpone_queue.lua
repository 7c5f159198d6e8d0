-- postpone_queue: renew the lease of a queue, or make it due again, and note what its driver has done.
-- KEYS  root of the start tasks
-- ARGV  conversation:text  lease:text  span:int from now, µs  state:map* what to note of it; "tried", "": it only waits
-- Returns  flag: false where the lease is another driver's, or the queue is gone
-- Cost  O(log q): q queues
-- Idempotent  a repeat prolongs it a little more
-- include: _queue.lua
if state_of(conversation, 'lease') ~= lease then return 0 end
if #state > 0 then redis.call('HSET', root .. ':queued:' .. conversation, unpack(state)) end
redis.call('ZADD', root .. ':queues', now + span, conversation)
return 1
