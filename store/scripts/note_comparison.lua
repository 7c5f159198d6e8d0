-- note_comparison: store how far the log of a conversation was compared with that of its live agent, unless another
-- comparison or a settlement has stored its own progress. Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  before:json `agent_log` before the comparison, "" none  after:json `agent_log` from now on
--       ended:flag an interrupted run is known to have ended
-- Returns  flag: false if another has stored its progress | missing: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds its own
if redis.call('EXISTS', root) == 0 then return false end
local known = redis.call('HGET', root, 'agent_log') or ''
if known ~= before and known ~= after then return 0 end
redis.call('HSET', root, 'agent_log', after)
if ended then redis.call('HSET', root, 'interrupted', 'false') end
return 1
