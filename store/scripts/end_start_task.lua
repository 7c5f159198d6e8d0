-- end_start_task: end an unfinished start task, or every one of a conversation, also of its children, as ERROR, for good.
-- Its driver finds that at its next step, and a supervisor removes what it has made. The messages that wait for it go at once.
-- KEYS  root of the start tasks
-- ARGV  id:text "" those of a conversation  conversation:text "" the one  children:flag also those of its children  detail:text
--       failure:json what a request gets that waits for it
-- Returns  text*: ids of those that this call has ended
-- Cost  O(n log s): n of the conversation that are unfinished, s start tasks
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
