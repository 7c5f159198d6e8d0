-- beat_host: write the heartbeat of a host's supervisor, and mark the sandboxes of lost hosts. One host has one supervisor.
-- KEYS  1 root of the sandboxes
-- ARGV  1 host   2 identity of the supervisor   3 a heartbeat that is older, µs, is lost
--       4 a sandbox that waits longer for a host, µs, has failed
-- Returns  "alive" | "taken": another supervisor speaks for this host
-- Cost  O(h + s): h hosts that were lost since the last look, s sandboxes of them
-- Idempotent  a repeat writes the same
-- include: _clock.lua
-- include: _sandbox.lua
-- include: _lost.lua
local LEASE = 3000000 -- µs after a heartbeat for which no other supervisor may speak for the host
local host, supervisor, host_span, start_span = unpack(ARGV)
local holder = redis.call('HGET', root .. ':supervisors', host)
local beat = redis.call('ZSCORE', root .. ':hosts', host)
if holder and holder ~= supervisor and beat and tonumber(beat) > now - LEASE then return 'taken' end
redis.call('HSET', root .. ':supervisors', host, supervisor)
redis.call('ZADD', root .. ':hosts', now, host)
look_after_the_lost(host_span, start_span)
return 'alive'
