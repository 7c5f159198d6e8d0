-- _queue: messages that wait until their conversation can receive them.
-- Included by every script that uses a queue. `queue:ID` has the messages of a conversation in order, "ID JSON" each,
-- `queued:ID` their state, and `queues` the conversations by the time when a driver may claim them, µs.
-- include: _start_task.lua
local function state_of(conversation, name) return redis.call('HGET', root .. ':queued:' .. conversation, name) end

local function drop(conversation)
  redis.call('UNLINK', root .. ':queue:' .. conversation, root .. ':queued:' .. conversation)
  redis.call('ZREM', root .. ':queues', conversation)
end
