-- pack_events: put frames in the place of events that an older release kept as they came.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 incarnation of the conversation   then two per event, at most 100 events: seq, frame
-- Returns  1 | false: the conversation was deleted, or has become cold
-- Cost  O(e n'): e events, n' list nodes between them and the nearer end of the log
-- Idempotent  a repeat writes the same
local root = KEYS[1]
local incarnation, cold = unpack(redis.call('HMGET', root, 'incarnation', 'cold'))
if incarnation ~= ARGV[1] or cold then return false end
for i = 2, #ARGV, 2 do redis.call('LSET', root .. ':log', ARGV[i] - 1, ARGV[i + 1]) end
return 1
