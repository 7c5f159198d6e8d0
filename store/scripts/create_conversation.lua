-- create_conversation: create a conversation unless the id is taken, with its first message when there is one.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp  incarnation:text one per request  message_id:text of a first message, "" none
--       pair:text its KIND:SOURCE, escaped  event:bytes  record:bytes its text
--       echo:text expected "CLAIM TOKEN" of its agent, "" none  start_body:bytes sealed, "" none
--       start_id:text id of its start task, "" none  secrets:map[] sealed  fields:map* of the hash
-- Returns  "created" "exists" (state:log_state) | missing: that start task has ended
-- Cost  O(1)
-- Idempotent  by incarnation: a repeat of the call that created returns "created" and writes nothing
-- Log  not guarded: it writes only if there is no conversation
-- Brings  bytes
-- include: _message.lua
-- include: _echoes.lua
local known = redis.call('HGET', root, 'incarnation')
if known then
  open_log(stamp.id_prefix)
  return close_log(known == incarnation and 'created' or 'exists', stamp.utc)
end

if redis.call('EXISTS', root .. ':ended:' .. start_id) == 1 then return false end
redis.call('PERSIST', root .. ':audit') -- the audit of an earlier conversation with this id continues
redis.call('HSET', root, 'incarnation', incarnation, unpack(fields))
if #secrets > 0 then redis.call('HSET', root .. ':secrets', unpack(secrets)) end
if start_body ~= '' then redis.call('SET', root .. ':start', start_body) end
if echo ~= '' then
  local claim, token = string.match(echo, '^(.*) (%S+)$')
  expect(claim, token, stamp.score)
end
open_log(stamp.id_prefix)
if message_id ~= '' then append_message(stamp, message_id, pair, event, record, true, {}) end
return close_log('created', stamp.utc)
