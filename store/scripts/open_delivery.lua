-- open_delivery: note a delivery before its decision, so that a supervisor finds it after a kill of the worker, and take
-- the lease of its agent unless another delivery has it. No supervisor claims the entry before the lease would end.
-- KEYS  1 root of the sandboxes
-- ARGV  1 entry: delivery id, conversation id and sandbox id, separated by spaces   2 token of the lease   3 lease, ms
--       4 a heartbeat that is older, µs, is lost   5 a sandbox that waits longer for a host, µs, has failed
--       6 µs until the conversation is compared with its agent
-- Returns  {1 | 0: another delivery has the lease, end of the lease in µs, status of the sandbox, URL of its agent server,
--          its sealed key}
-- Cost  O(log d + log c): d deliveries that are due or will be, c conversations to be compared, and what a host that was just lost costs (beat_host)
-- Idempotent  by token: a repeat prolongs the same lease
-- include: _lost.lua
-- include: _delivery.lua
-- include: _checks.lua
local entry, token, lease, host_span, start_span, check_span = unpack(ARGV)
look_after_the_lost(host_span, start_span)
local taken, lease_end = take(entry, token, lease)
check_in(sandbox_of(entry), string.match(entry, ' (%S+) '), check_span)
return {taken, lease_end, unpack(agent_of(sandbox_of(entry)))}
