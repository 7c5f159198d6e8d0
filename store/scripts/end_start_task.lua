-- end_start_task: end an unfinished start task, or every one of a conversation, also of its children, as ERROR, for good.
-- Its driver finds that at its next step, and a supervisor removes what it has made. The messages that wait for it go at once.
-- KEYS  1 root of the start tasks
-- ARGV  1 id ("" those of a conversation)   2 conversation id ("" the one)   3 "1": and of its children
--       4 detail   5 what a request gets that waits for it, JSON
-- Returns  {ids of those that this call has ended}
-- Cost  O(n log s): n of the conversation that are unfinished, s start tasks
-- Idempotent  a repeat finds them ended
-- include: _queue.lua
local one, conversation, children, detail, failure = unpack(ARGV)
local ended = {}
for _, id in ipairs(one ~= '' and {one} or redis.call('SMEMBERS', root .. ':of:' .. conversation)) do
  local status, starts = field(id, 'status'), field(id, 'conversation_id')
  local is_meant = one ~= '' or children == '1' or starts == conversation
  if is_meant and status and not FINISHED[status] then
    write(id, 'ended', '1', 'failure', failure)
    finish(id, 'ERROR', detail)
    if state_of(starts, 'start_id') == id then drop(starts) end
    redis.call('PUBLISH', root .. ':signal', id)
    ended[#ended + 1] = id
  end
end
return ended
