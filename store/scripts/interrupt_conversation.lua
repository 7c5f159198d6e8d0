-- interrupt_conversation: record that the agent server of a conversation ended.
-- A run is paused, and recorded as interrupted. A conversation that waits for a decision keeps waiting.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp its id prefix is one per end of an agent server  sandbox_id:text
--       failure:json members of a ConversationErrorEvent without braces, "" no such event
-- Returns  "noted"(state:log_state) | "foreign"(state:log_state): the conversation is in another sandbox or in none
--          | missing: no such conversation | error COLD: it has an event to append, and the log is in cold storage
--          | error DAMAGED: the log has lost events
-- Cost  O(log n): n events of the conversation
-- Idempotent  by id prefix: a repeat finds its event, and the conversation paused
-- Log  guarded here
-- include: _log.lua
-- include: _damage.lua
if not open_log(stamp.id_prefix) then return false end
local sandbox, cold = unpack(redis.call('HMGET', root, 'sandbox_id', 'cold'))
if sandbox ~= sandbox_id then return close_log('foreign', stamp.utc) end
if cold and failure ~= '' then return redis.error_reply('COLD ' .. cold) end
local damage = not cold and damage_of(root, log.seq)
if damage then return damage end
local error_id = next_id()
if failure ~= '' and not seq_of(error_id, log.stored) then
  append_event(error_id, 'ConversationErrorEvent:environment', stamp.score,
    '{"id":"' .. error_id .. '","timestamp":"' .. stamp.iso .. '","source":"environment",' .. failure ..
    ',"kind":"ConversationErrorEvent"}', '')
end
if log.status == 'running' then
  log.fields.interrupted = 'true'
  set_status('paused', stamp)
end
return close_log('noted', stamp.utc)
