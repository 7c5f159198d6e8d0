-- read_approvals: return the pending actions of a conversation, and the end of its audit, at one moment.
-- KEYS  root of the conversation
-- ARGV  after:int seq of the audit entry to read after  most:int entries
-- Returns  (there:text revision:int title:json tags:json sandbox:text capabilities:json audited:int audit:bytes[]
--          folder:text origin:json inside:flag held:text pending:(id:text record:json)[]): "there", "gone" or "left":
--          all is decided, without the conversation having continued; revision of the approvals; sandbox id, "" none;
--          number of audit entries; folder of its agent, "" unknown
-- Cost  O(p log p + e): p open actions, e entries
-- Idempotent  reads only
-- Log  not guarded: open actions stay in Redis
-- include: _actions.lua
local state = redis.call('HMGET', root, 'execution_status', 'approvals', 'title', 'tags', 'sandbox_id',
  'told.capabilities', 'folder', 'origin', 'approves_inside',
  'held')
local entries = redis.call('LRANGE', root .. ':audit', after, after + most - 1)
local reply = {state[1] and 'there' or 'gone', state[2] or now, state[3] or 'null', state[4] or '{}',
  state[5] or '', state[6] or '[]', redis.call('LLEN', root .. ':audit'), entries,
  state[7] or '', state[8] or '{}', state[9] == 'true' and 1 or 0, state[10] or ''}
local open = state[1] == 'waiting_for_confirmation' and open_actions() or {}
local waiting = undecided(open)
if #waiting == 0 and #unreleased(open) > 0 then reply[1] = 'left' end
local pending = {}
for _, action in ipairs(waiting) do
  pending[#pending + 1], pending[#pending + 2] = action.id, redis.call('HGET', root .. ':pending', action.id)
end
reply[#reply + 1] = pending
return reply
