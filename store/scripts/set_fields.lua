-- set_fields: set fields of a conversation; other fields stay. A change that agents know by name is an event of the log;
-- in a sandbox the agent itself writes that event, once it is told: title and tags are due until then. A pending action stays pending under a new policy.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per request   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 the risks that a new policy holds, joined by commas ("-" no new policy)
--       then three per field: name, value as JSON ("" removes the field), "1" for an event, else "0"
-- Returns  {"set" | "due": set, and its agent is to be told, revision, execution_status, created_at, updated_at, groups, title, whether approvals matter} | false: no such conversation
-- Cost  O(f log n): f fields, n events of the conversation
-- Idempotent  a repeat finds the fields set
-- Log  needed
-- Brings  bytes
-- include: _title.lua
if not open_log(ARGV[1]) then return false end
local in_sandbox = redis.call('HEXISTS', root, 'sandbox_id') == 1
local stamp = {iso = ARGV[2], score = ARGV[3]}
if ARGV[5] ~= '-' then log.held = ARGV[5] end
for i = 6, #ARGV, 3 do
  local name, value, event = unpack(ARGV, i, i + 2)
  if (redis.call('HGET', root, name) or '') ~= value then
    if value == '' then redis.call('HDEL', root, name) else redis.call('HSET', root, name, value) end
    log.changed = true
    if name == 'title' then tell_title(value, stamp.iso) end
    if event == '1' and not in_sandbox then state_event(name, value, stamp) end
    if in_sandbox and (name == 'title' or name == 'tags') then log.fields.labels_due = ARGV[1] end
  end
end
return close_log(log.fields.labels_due and 'due' or 'set', ARGV[4])
