-- get_final_event: the event that holds the agent's final response.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  (none)
-- Returns  {event as kept}, empty while the agent has sent no message | false: no such conversation
-- Cost  O(n'): n' list nodes between the event and the nearer end of the log
-- Idempotent  reads only
-- Log  needed
local root = KEYS[1]
local state = redis.call('HMGET', root, 'id', 'final_seq')
if not state[1] then return false end
return state[2] and {redis.call('LINDEX', root .. ':log', state[2] - 1)} or {}
