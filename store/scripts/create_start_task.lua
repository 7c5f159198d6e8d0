-- create_start_task: create a start task, once per id, which a driver will claim.
-- With `asked`, an unfinished start task of the conversation is returned instead, if it is among the conversation's 100
-- newest; also an earlier one of the same request, unless it has failed by itself.
-- KEYS  root of the start tasks
-- ARGV  id:text  conversation:text  most:int unfinished start tasks
--       asked:text id of a request for at most one start task, and none beside an unfinished one; "" no such limit
--       body:bytes sealed body of the request, "" none  fields:map*
-- Returns  "created" "exists"(found:hash) | "full"(unfinished:int) | "gone": it was deleted with its conversation
-- Cost  O(log s): s start tasks
-- Idempotent  by id
-- Brings  bytes
-- include: _start_task.lua
if field(id, 'created_at') then return {'exists', redis.call('HGETALL', root .. ':task:' .. id)} end
if redis.call('EXISTS', root .. ':ended:' .. id) == 1 then return 'gone' end
if asked ~= '' then
  for _, other in ipairs(redis.call('ZREVRANGE', root .. ':created:' .. conversation, 0, 99)) do
    local status = field(other, 'status')
    local is_repeat = field(other, 'asked') == asked and (status == 'READY' or field(other, 'ended') == '1')
    if status and (is_repeat or not FINISHED[status]) then return {'exists', redis.call('HGETALL', root .. ':task:' .. other)} end
  end
end
local unfinished = redis.call('ZCARD', root .. ':due')
if unfinished >= most then return {'full', unfinished} end
redis.call('HSET', root .. ':task:' .. id, 'id', id, 'conversation_id', conversation, 'status', 'WORKING', 'detail', '',
  'sandbox_id', '', 'own_sandbox', '', 'agent_server_url', '', 'attempts', 0, 'created_at', now, 'asked', asked, unpack(fields))
mark_under_way(id, 'SADD')
if body ~= '' then redis.call('SET', root .. ':body:' .. id, body) end
redis.call('ZADD', root .. ':created', now, id)
redis.call('ZADD', root .. ':created:' .. conversation, now, id)
write(id)
redis.call('ZADD', root .. ':due', joins_at(), id)
redis.call('PUBLISH', root .. ':signal', id)
return {'created', redis.call('HGETALL', root .. ':task:' .. id)}
