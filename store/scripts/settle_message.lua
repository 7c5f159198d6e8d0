-- settle_message: remove the first message from a queue, after it was delivered or dropped.
-- The next message is due at once.
-- KEYS  root of the start tasks
-- ARGV  conversation:text  lease:text  id:text of the message; "": the first message has a corrupt record
-- Returns  flag: false if another driver has the lease, or the queue is gone
-- Cost  O(log q): q queues
-- Idempotent  by message id: a repeat finds another message first, and changes nothing
-- include: _queue.lua
if state_of(conversation, 'lease') ~= lease then return 0 end
local first = redis.call('LINDEX', root .. ':queue:' .. conversation, 0)
if first and (id == '' or first:sub(1, #id) == id) then
  redis.call('LPOP', root .. ':queue:' .. conversation)
  redis.call('HDEL', root .. ':queued:' .. conversation, 'tried', 'sent', 'after')
  redis.call('ZADD', root .. ':queues', now, conversation)
  if redis.call('LLEN', root .. ':queue:' .. conversation) == 0 then drop(conversation) end
end
return 1
