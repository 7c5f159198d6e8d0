-- note_comparison: keep how far the log of a conversation was compared with that of its agent, which lives, unless another
-- comparison or a settlement has kept its own since. Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  before:json `agent_log` as the comparison found it, "" none  after:json `agent_log` from now on
--       ended:flag a run that was interrupted is known to have an end
-- Returns  flag: false where another has kept its own | missing: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds its own
if redis.call('EXISTS', root) == 0 then return false end
local known = redis.call('HGET', root, 'agent_log') or ''
if known ~= before and known ~= after then return 0 end
redis.call('HSET', root, 'agent_log', after)
if ended then redis.call('HSET', root, 'interrupted', 'false') end
return 1
