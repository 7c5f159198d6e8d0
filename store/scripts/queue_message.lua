-- queue_message: append a message to a conversation's queue, once per id.
-- A supervisor delivers it.
-- KEYS  root of the start tasks
-- ARGV  conversation:text  start_id:text of its start task while that is unfinished, else ""  id:text of the message
--       message:json  most:int messages of a queue  seconds:int for which a repeat is recognised
-- Returns  "queued"(position:int) | "full"(number:int)
-- Cost  O(log q): q queues
-- Idempotent  by message id: a repeat returns the same position, even after the delivery
-- Brings  bytes
-- include: _queue.lua
local known = redis.call('GET', root .. ':message:' .. id)
if known then return {'queued', tonumber(known)} end
local number = redis.call('LLEN', root .. ':queue:' .. conversation)
if number >= most then return {'full', number} end
if number == 0 then
  redis.call('HSET', root .. ':queued:' .. conversation, 'start_id', start_id)
  redis.call('ZADD', root .. ':queues', joins_at(), conversation)
end
redis.call('RPUSH', root .. ':queue:' .. conversation, id .. ' ' .. message)
redis.call('SET', root .. ':message:' .. id, number + 1, 'EX', seconds)
redis.call('PUBLISH', root .. ':signal', conversation)
return {'queued', number + 1}
