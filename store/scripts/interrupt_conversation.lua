-- interrupt_conversation: note that the agent server of a conversation ended. A run is paused, and the conversation
-- remembers that it ran; a conversation that waits for a decision keeps waiting.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per end of an agent server   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 id of the sandbox   6 members of a ConversationErrorEvent, as JSON without braces ("" no such event)
-- Returns  {"noted" | "foreign": the conversation is in another sandbox or in none, revision, execution_status, created_at,
--          updated_at, groups, title, whether approvals matter} | false: no such conversation
--          | the error COLD: it has an event to append, and the log lies in an object
--          | the error DAMAGED: the log has lost events
-- Cost  O(log n): n events of the conversation
-- Idempotent  by id prefix: a repeat finds its event, and the conversation paused
-- Log  guarded here
-- include: _log.lua
-- include: _damage.lua
if not open_log(ARGV[1]) then return false end
local sandbox, cold = unpack(redis.call('HMGET', root, 'sandbox_id', 'cold'))
if sandbox ~= ARGV[5] then return close_log('foreign', ARGV[4]) end
if cold and ARGV[6] ~= '' then return redis.error_reply('COLD ' .. cold) end
local damage = not cold and damage_of(root, log.seq)
if damage then return damage end
local stamp, error_id = {iso = ARGV[2], score = ARGV[3]}, next_id()
if ARGV[6] ~= '' and not seq_of(error_id, log.stored) then
  append_event(error_id, 'ConversationErrorEvent:environment', stamp.score,
    '{"id":"' .. error_id .. '","timestamp":"' .. stamp.iso .. '","source":"environment",' .. ARGV[6] ..
    ',"kind":"ConversationErrorEvent"}', '')
end
if log.status == 'running' then
  log.fields.interrupted = 'true'
  set_status('paused', stamp)
end
return close_log('noted', ARGV[4])
