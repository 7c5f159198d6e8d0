-- read_request: return an action that an asker awaits, and its decision.
-- Renews the lease if it still waits.
-- KEYS  root of the conversation
-- ARGV  id:text of the action  renews:flag
-- Returns  (origin:json external:json waits:text is_due:flag record:json? entry:json?): waits is "here", "in_terminal"
--          or "" for no longer; whether a deadline or the lease has passed, without a consequence yet; the open action,
--          and the audit entry of its decision | missing: no such conversation
-- Cost  O(e): e list nodes from the nearer end of the audit
-- Idempotent  a repeat renews the lease again
-- Kept  not proven: a lost lease only ends a wait
-- include: _asked.lua
local state = redis.call('HMGET', root, 'origin', 'external', 'execution_status')
if not state[3] then return false end
local stored, seq = redis.call('HGET', root .. ':pending', id), redis.call('HGET', root .. ':decided', id)
local entry = seq and redis.call('LINDEX', root .. ':audit', seq - 1)
local action, waits, is_due = stored and cjson.decode(stored), '', false
local ask = action and action.ask
if ask and not action.decided and state[3] == 'waiting_for_confirmation' then
  is_due = tonumber(due_of(action)) <= tonumber(now)
  waits = has_ended(ask) and 'in_terminal' or 'here'
  if renews and not is_due and waits == 'here' then
    ask.lapses = after_seconds(ask.lease)
    stored = cjson.encode(action)
    redis.call('HSET', root .. ':pending', id, stored)
  end
end
return {state[1] or '{}', state[2] or '', waits, is_due and 1 or 0, stored, entry}
