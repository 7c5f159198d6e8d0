-- end_start_task: end an unfinished start task, or all of a conversation and its children, as ERROR, for good.
-- Its driver finds out at its next step, and a supervisor removes what it has created. Its queued messages are deleted
-- at once.
-- KEYS  root of the start tasks
-- ARGV  id:text "" all of a conversation  conversation:text "" a single one  children:flag also those of its children
--       detail:text  failure:json response to the requests that wait for it
-- Returns  text*: ids of the start tasks that this call has ended
-- Cost  O(n log s): n unfinished start tasks of the conversation, s start tasks
-- Idempotent  a repeat finds them ended
-- include: _queue.lua
local ended = {}
for _, one in ipairs(id ~= '' and {id} or redis.call('SMEMBERS', root .. ':of:' .. conversation)) do
  local status, starts = field(one, 'status'), field(one, 'conversation_id')
  local is_meant = id ~= '' or children or starts == conversation
  if is_meant and status and not FINISHED[status] then
    write(one, 'ended', '1', 'failure', failure)
    finish(one, 'ERROR', detail)
    if state_of(starts, 'start_id') == one then drop(starts) end
    redis.call('PUBLISH', root .. ':signal', one)
    ended[#ended + 1] = one
  end
end
return ended
