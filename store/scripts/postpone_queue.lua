-- postpone_queue: renew the lease of a queue, or make it due again, and record what its driver has done.
-- KEYS  root of the start tasks
-- ARGV  conversation:text  lease:text  span:int from now, µs  state:map* to record; "tried", "": it only waits
-- Returns  flag: false if another driver has the lease, or the queue is gone
-- Cost  O(log q): q queues
-- Idempotent  a repeat prolongs it a bit more
-- include: _queue.lua
if state_of(conversation, 'lease') ~= lease then return 0 end
if #state > 0 then redis.call('HSET', root .. ':queued:' .. conversation, unpack(state)) end
redis.call('ZADD', root .. ':queues', now + span, conversation)
return 1
