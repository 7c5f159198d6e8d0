-- queue_message: put a message at the end of a conversation's queue, once per id; a supervisor delivers it.
-- KEYS  1 root of the start tasks
-- ARGV  1 conversation id   2 id of its start task while that is unfinished, else ""   3 message id   4 message, JSON
--       5 most messages of a queue   6 seconds for which a repeat is recognised
-- Returns  {"queued", position} | {"full", number of messages}
-- Cost  O(log q): q queues
-- Idempotent  by message id: a repeat returns the same position, also after the delivery
-- Brings  bytes
-- include: _queue.lua
local conversation, start_id, id, message, most, kept = unpack(ARGV)
local known = redis.call('GET', root .. ':message:' .. id)
if known then return {'queued', tonumber(known)} end
local number = redis.call('LLEN', root .. ':queue:' .. conversation)
if number >= tonumber(most) then return {'full', number} end
if number == 0 then
  redis.call('HSET', root .. ':queued:' .. conversation, 'start_id', start_id)
  redis.call('ZADD', root .. ':queues', joins_at(), conversation)
end
redis.call('RPUSH', root .. ':queue:' .. conversation, id .. ' ' .. message)
redis.call('SET', root .. ':message:' .. id, number + 1, 'EX', kept)
redis.call('PUBLISH', root .. ':signal', conversation)
return {'queued', number + 1}
