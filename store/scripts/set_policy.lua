-- set_policy: store a confirmation policy; a change is an event of the log. What already waits goes on waiting.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 policy as JSON   6 the risks that it holds, joined by commas
-- Returns  "changed" | "same" | false: no such conversation
-- Cost  O(log n): n events of the conversation
-- Idempotent  a repeat finds the policy set
-- include: _log.lua
if not open_log(ARGV[1]) then return false end
if redis.call('HGET', root, 'confirmation_policy') == ARGV[5] then return 'same' end
redis.call('HSET', root, 'confirmation_policy', ARGV[5])
log.held = ARGV[6]
state_event('confirmation_policy', ARGV[5], {iso = ARGV[2], score = ARGV[3]})
close_log(ARGV[4])
return 'changed'
