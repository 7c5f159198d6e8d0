-- count_hosts: return the number of hosts with a recent heartbeat.
-- KEYS  root of the sandboxes
-- ARGV  host_span:int age in µs at which a heartbeat is lost
-- Returns  int
-- Cost  O(log h): h hosts
-- Idempotent  reads only
-- include: _clock.lua
return redis.call('ZCOUNT', root .. ':hosts', now - host_span, '+inf')
