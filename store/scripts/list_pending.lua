-- list_pending: the actions that wait for an answer, in log order.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  (none)
-- Returns  {since, event bytes, since, event bytes, …} | false: no such conversation
-- Cost  O(p log p): p open actions
-- Idempotent  reads only
-- include: _log.lua
if not open_log('') then return false end
local pending = {}
if log.status == 'waiting_for_confirmation' then
  for _, action in ipairs(open_actions()) do
    pending[#pending + 1] = action.since
    pending[#pending + 1] = redis.call('LINDEX', root .. ':log', action.seq - 1)
  end
end
return pending
