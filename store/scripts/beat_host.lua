-- beat_host: record the heartbeat of a host's supervisor, and mark the sandboxes of lost hosts.
-- A host has one supervisor.
-- KEYS  root of the sandboxes
-- ARGV  host:text  supervisor:text its id  spans:spans
-- Returns  "alive" | "taken": another supervisor has the lease of this host
-- Cost  O(h + s): h newly lost hosts, s sandboxes of them
-- Idempotent  a repeat writes the same
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _lost.lua
local LEASE = 4000000 -- µs of silence for which no other supervisor may take the host
local holder = redis.call('HGET', root .. ':supervisors', host)
if holder and holder ~= supervisor and not is_silent(host, LEASE) then return 'taken' end
redis.call('HSET', root .. ':supervisors', host, supervisor)
redis.call('ZADD', root .. ':hosts', now, host)
redis.call('HDEL', root .. ':silent', host)
note_supervisor()
mark_lost_sandboxes(spans.host, spans.start)
return 'alive'
