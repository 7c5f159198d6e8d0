-- open_delivery: record a delivery before its decision, so that a supervisor finds it if the worker is killed, and take
-- the lease of its agent unless another delivery has it. No supervisor claims the entry before the lease would end.
-- KEYS  root of the sandboxes
-- ARGV  entry:text delivery id, conversation id and sandbox id, separated by spaces  token:text of the lease
--       lease:int ms  host_span:int µs after which a heartbeat is lost
--       start_span:int µs after which a sandbox without a host has failed
--       check_span:int µs until the conversation is compared with its agent
-- Returns  (taken:flag lease_end:micros status:text url:text key:text): false if another delivery has the lease; status
--          of the sandbox, URL of its agent server, its sealed key
-- Cost  O(log d + log c): d deliveries in the due index, c conversations in the due index plus the cost of newly lost
--       hosts (beat_host)
-- Idempotent  by token: a repeat prolongs the same lease
-- include: _lost.lua
-- include: _delivery.lua
-- include: _checks.lua
mark_lost_sandboxes(host_span, start_span)
local taken, lease_end = take(entry, token, lease)
check_in(sandbox_of(entry), string.match(entry, ' (%S+) '), check_span)
return {taken, lease_end, unpack(agent_of(sandbox_of(entry)))}
