-- note_comparison: keep how far the log of a conversation was compared with that of its agent, which lives, unless another
-- comparison or a settlement has kept its own since. Nothing that clients see changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 `agent_log` as the comparison found it, JSON ("" none)   2 `agent_log` from now on, JSON
--       3 "1": a run that was interrupted is known to have an end, else ""
-- Returns  1 | 0: another has kept its own | false: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds its own
if redis.call('EXISTS', root) == 0 then return false end
local known = redis.call('HGET', root, 'agent_log') or ''
if known ~= ARGV[1] and known ~= ARGV[2] then return 0 end
redis.call('HSET', root, 'agent_log', ARGV[2])
if ARGV[3] == '1' then redis.call('HSET', root, 'interrupted', 'false') end
return 1
