-- read_approvals: what waits in a conversation, and the end of its audit, as one moment has them.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 seq of the entry of the audit to read after   2 most entries
-- Returns  {there, gone or left: all that waited is decided, and not gone on with, revision of the approvals, title as JSON, tags as JSON, sandbox id (empty: none), capabilities
--          as JSON (empty: none), number of entries of the audit, entries read, then each entry, then of each pending
--          action its id and its record}
-- Cost  O(p log p + e): p open actions, e entries
-- Idempotent  reads only
-- Log  not guarded: open actions stay in Redis
-- include: _actions.lua
local state = redis.call('HMGET', root, 'execution_status', 'approvals', 'title', 'tags', 'sandbox_id',
  'told.capabilities')
local entries = redis.call('LRANGE', root .. ':audit', ARGV[1], ARGV[1] + ARGV[2] - 1)
local reply = {state[1] and 'there' or 'gone', state[2] or now, state[3] or 'null', state[4] or '{}',
  state[5] or '', state[6] or '', redis.call('LLEN', root .. ':audit'), #entries}
for _, entry in ipairs(entries) do reply[#reply + 1] = entry end
local open = state[1] == 'waiting_for_confirmation' and open_actions() or {}
local waiting = undecided(open)
if #waiting == 0 and #unreleased(open) > 0 then reply[1] = 'left' end
for _, action in ipairs(waiting) do
  reply[#reply + 1], reply[#reply + 2] = action.id, redis.call('HGET', root .. ':pending', action.id)
end
return reply
