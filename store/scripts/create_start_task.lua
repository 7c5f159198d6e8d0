-- create_start_task: create a start task, once per id; a driver claims it. Where it is asked for, a start task of the
-- conversation that is under way stands for it, as far as one is among the conversation's 100 newest.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 conversation id   3 most unfinished start tasks   4 "once": no second one beside one under way
--       5 sealed body of the request ("" none)   then name, value, … of fields
-- Returns  {"created" | "exists", fields and values of the start task} | {"full", number of unfinished start tasks}
-- Cost  O(log s): s start tasks
-- Idempotent  by id
-- Log  none
-- Kept  proven
-- Brings  bytes
-- include: _clock.lua
-- include: _start_task.lua
local id, conversation, most, once, body = unpack(ARGV)
if field(id, 'created_at') then return {'exists', redis.call('HGETALL', root .. ':task:' .. id)} end
if once == 'once' then
  for _, other in ipairs(redis.call('ZREVRANGE', root .. ':created:' .. conversation, 0, 99)) do
    local status = field(other, 'status')
    if status and not FINISHED[status] then return {'exists', redis.call('HGETALL', root .. ':task:' .. other)} end
  end
end
local unfinished = redis.call('ZCARD', root .. ':due')
if unfinished >= tonumber(most) then return {'full', unfinished} end
redis.call('HSET', root .. ':task:' .. id, 'id', id, 'conversation_id', conversation, 'status', 'WORKING', 'detail', '',
  'sandbox_id', '', 'own_sandbox', '', 'agent_server_url', '', 'attempts', 0, 'created_at', now, unpack(ARGV, 6))
if body ~= '' then redis.call('SET', root .. ':body:' .. id, body) end
redis.call('ZADD', root .. ':created', now, id)
redis.call('ZADD', root .. ':created:' .. conversation, now, id)
write(id)
redis.call('ZADD', root .. ':due', joins_at(), id)
redis.call('PUBLISH', root .. ':signal', id)
return {'created', redis.call('HGETALL', root .. ':task:' .. id)}
