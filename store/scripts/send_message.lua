-- send_message: append a user's message.
-- It never approves: the pending actions are rejected first, and so are decided ones with which the conversation has
-- not continued. A finished, stuck or waiting conversation becomes idle; with `run`, any that can run becomes running.
-- The time of a message is never earlier than that of an action that it rejects: the caller calls again with a later
-- time.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp  id:text  pair:text KIND:SOURCE, escaped  event:bytes  record:bytes its text  run:flag
--       reason:json of the rejection, canonical  may_decide:flag whether the sender may decide pending actions
--       actor:json the sender, canonical  voter:text of the sender where several people must approve; "" none
--       rights:json of a person, for `_rights.lua`; "" none  most_bytes:int of the log
-- Returns  "sent"(state:log_state) | "early"(state:log_state earliest:micros)
--          | "forbidden"(state:log_state): it would reject pending actions
--          | "changed"(state:log_state): the sender's right has changed | "too_long"(state:log_state)
--          | "unattended"(state:log_state): a detached copy, to which no agent has posted
--          | "external"(state:log_state): its agent runs in a terminal | missing: no such conversation
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by message id
-- Log  needed
-- Brings  bytes
-- include: _message.lua
-- include: _rights.lua
if not open_log(stamp.id_prefix) then return false end
if not seq_of(id, log.stored) then
  if redis.call('HEXISTS', root, 'external') == 1 then return close_log('external', stamp.utc) end
  if redis.call('HEXISTS', root, 'unattended') == 1 then return close_log('unattended', stamp.utc) end
  if log.bytes + #event + #record > most_bytes then return close_log('too_long', stamp.utc) end
  local rejected = log.status == 'waiting_for_confirmation' and unreleased(open_actions()) or {}
  if #rejected > 0 then
    if not may_decide then return close_log('forbidden', stamp.utc) end
    if have_changed(rights) then return close_log('changed', stamp.utc) end
    local earliest = not_before(rejected, stamp)
    if earliest ~= stamp then return close_log('early', stamp.utc, earliest.score) end
  end
  if voter ~= '' then redis.call('HSET', root, 'asker', voter) end
  append_message(stamp, id, pair, event, record, run, rejected,
    {actor = actor, reason = reason, said = reason, time = stamp.utc})
end
return close_log('sent', stamp.utc)
