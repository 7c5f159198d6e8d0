-- note_recovery: keep how far the log of a conversation was compared with its agent's, and whether a run was interrupted.
-- Nothing that clients see changes: neither its revision nor the time of its last change.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 `agent_log` as JSON   2 `interrupted` as JSON
-- Returns  1 | false: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds the fields set
local root = KEYS[1]
if redis.call('EXISTS', root) == 0 then return false end
redis.call('HSET', root, 'agent_log', ARGV[1], 'interrupted', ARGV[2])
return 1
