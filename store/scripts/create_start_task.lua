-- create_start_task: create a start task, once per id; a driver claims it.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 conversation id   3 most unfinished start tasks   then name, value, … of fields
-- Returns  {"created" | "exists", fields and values of the start task} | {"full", number of unfinished start tasks}
-- Cost  O(log s): s start tasks
-- Idempotent  by id
-- include: _clock.lua
-- include: _start_task.lua
local id, conversation, most = unpack(ARGV)
if field(id, 'created_at') then return {'exists', redis.call('HGETALL', root .. ':task:' .. id)} end
local unfinished = redis.call('ZCARD', root .. ':due')
if unfinished >= tonumber(most) then return {'full', unfinished} end
redis.call('HSET', root .. ':task:' .. id, 'id', id, 'conversation_id', conversation, 'status', 'WORKING', 'detail', '',
  'sandbox_id', '', 'own_sandbox', '', 'agent_server_url', '', 'attempts', 0, 'created_at', now, unpack(ARGV, 4))
redis.call('ZADD', root .. ':created', now, id)
redis.call('ZADD', root .. ':created:' .. conversation, now, id)
write(id)
redis.call('ZADD', root .. ':due', now, id)
redis.call('PUBLISH', root .. ':signal', id)
return {'created', redis.call('HGETALL', root .. ':task:' .. id)}
