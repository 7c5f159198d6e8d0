-- release_host: a supervisor that ends gives up its host, so that another one need not wait until the lease is over.
-- KEYS  1 root of the sandboxes
-- ARGV  1 host   2 who the supervisor is
-- Returns  "released" | "taken": another supervisor speaks for this host
-- Cost  O(1)
-- Idempotent  a repeat finds nobody or another one, and writes nothing
local root = KEYS[1]
local host, supervisor = unpack(ARGV)
if redis.call('HGET', root .. ':supervisors', host) ~= supervisor then return 'taken' end
redis.call('HDEL', root .. ':supervisors', host)
return 'released'
