-- get_final_event: return the event with the agent's final response.
-- KEYS  root of the conversation
-- ARGV  none
-- Returns  bytes*: the event as stored, none while the agent has sent no message | missing: no such conversation
-- Cost  O(n'): n' list nodes from the nearer end of the log
-- Idempotent  reads only
-- Log  needed
local state = redis.call('HMGET', root, 'id', 'final_seq')
if not state[1] then return false end
return state[2] and {redis.call('LINDEX', root .. ':log', state[2] - 1)} or {}
