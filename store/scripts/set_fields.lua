-- set_fields: set fields of a conversation; other fields stay.
-- A change that agents know by name is an event of the log. In a sandbox the agent itself writes that event once it has
-- the change: title and tags are due until then. A pending action stays pending under a new policy. A change of the
-- approval mode is an event of this server, and an audit entry to which the event's id leads.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp  held:text risks that a new policy holds, joined by commas; "-" no new policy
--       mode:json? {before, mode} of a new policy; absent: none  actor:json? who sets the mode, canonical
--       reason:json? description of the change, canonical
--       fields:(name:text value:json is_event:flag)* the value "" removes the field
-- Returns  "set"(state:log_state) | "due"(state:log_state): set, and its agent must receive it
--          | missing: no such conversation
-- Cost  O(f log n): f fields, n events of the conversation
-- Idempotent  a repeat finds the fields set
-- Log  needed
-- Brings  bytes
-- include: _title.lua
-- include: _audit.lua
if not open_log(stamp.id_prefix) then return false end
local in_sandbox, is_new = redis.call('HEXISTS', root, 'sandbox_id') == 1, false
if held ~= '-' then log.held = held end
for name, value, is_event in fields() do
  if (redis.call('HGET', root, name) or '') ~= value then
    if value == '' then redis.call('HDEL', root, name) else redis.call('HSET', root, name, value) end
    log.changed, is_new = true, true
    if name == 'title' then publish_title(value, stamp.iso) end
    if is_event and not in_sandbox then state_event(name, value, stamp) end
    if in_sandbox and (name == 'title' or name == 'tags') then log.fields.labels_due = stamp.id_prefix end
  end
end
if mode ~= '' and is_new then
  local id = next_id()
  state_event_of(id, 'approval_mode', mode, stamp)
  write_audit('mode_changed', {}, actor, reason, stamp.utc)
  local seq = string.format('%d', redis.call('LLEN', root .. ':audit'))
  note_decided({{id = id}}, seq)
  publish_decision('mode_changed', {'"' .. id .. '"'}, actor, reason, seq, stamp.utc, '')
  change_approvals()
end
return close_log(log.fields.labels_due and 'due' or 'set', stamp.utc)
