-- create_start_task: create a start task, once per id; a driver claims it.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 conversation id   then name, value, … of fields
-- Returns  when it was made, µs
-- Cost  O(log s): s start tasks
-- Idempotent  by id
-- include: _clock.lua
-- include: _start_task.lua
local id, conversation = ARGV[1], ARGV[2]
local created = field(id, 'created_at')
if created then return created end
redis.call('HSET', root .. ':task:' .. id, 'id', id, 'conversation_id', conversation, 'status', 'WORKING', 'detail', '',
  'sandbox_id', '', 'own_sandbox', '', 'agent_server_url', '', 'attempts', 0, 'created_at', now, unpack(ARGV, 3))
redis.call('ZADD', root .. ':created', now, id)
redis.call('ZADD', root .. ':created:' .. conversation, now, id)
write(id)
redis.call('ZADD', root .. ':due', now, id)
redis.call('PUBLISH', root .. ':signal', id)
return now
