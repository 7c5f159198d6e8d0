-- beat_host: write the heartbeat of a host's supervisor, and mark the sandboxes of lost hosts. One host has one supervisor.
-- KEYS  1 root of the sandboxes
-- ARGV  1 host   2 identity of the supervisor   3 a heartbeat that is older, µs, is lost
--       4 a sandbox that waits longer for a host, µs, has failed
-- Returns  "alive" | "taken": another supervisor holds the lease of this host
-- Cost  O(h + s): h hosts that were lost since the last look, s sandboxes of them
-- Idempotent  a repeat writes the same
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _lost.lua
local LEASE = 4000000 -- µs of silence for which no other supervisor may take the host
local host, supervisor, host_span, start_span = unpack(ARGV)
local holder = redis.call('HGET', root .. ':supervisors', host)
if holder and holder ~= supervisor and not is_silent(host, LEASE) then return 'taken' end
redis.call('HSET', root .. ':supervisors', host, supervisor)
redis.call('ZADD', root .. ':hosts', now, host)
redis.call('HDEL', root .. ':silent', host)
note_supervisor()
look_after_the_lost(host_span, start_span)
return 'alive'
