-- count_hosts: the number of hosts with a recent heartbeat.
-- KEYS  1 root of the sandboxes
-- ARGV  1 a heartbeat that is older, µs, is lost
-- Returns  their number
-- Cost  O(log h): h hosts
-- Idempotent  reads only
-- include: _clock.lua
return redis.call('ZCOUNT', root .. ':hosts', now - ARGV[1], '+inf')
