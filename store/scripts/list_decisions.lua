-- list_decisions: return the approved actions with which the conversation has continued, and that are not observed yet,
-- in log order.
-- KEYS  root of the conversation
-- ARGV  none
-- Returns  (id:text decision:text arguments:json?)*: approve, or edit with its arguments
--          | missing: no such conversation
-- Cost  O(p log p): p open actions
-- Idempotent  reads only
-- Log  not guarded: open actions stay in Redis
-- include: _actions.lua
if redis.call('EXISTS', root) == 0 then return false end
local reply = {}
for _, action in ipairs(open_actions()) do
  if action.released then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = action.id, action.decided, action.arguments or false
  end
end
return reply
