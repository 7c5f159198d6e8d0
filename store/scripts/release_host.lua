-- release_host: release the host of a supervisor that ends, so that another one need not wait for the end of the lease.
-- KEYS  root of the sandboxes
-- ARGV  host:text  supervisor:text who it is
-- Returns  "released" | "taken": another supervisor holds the lease of this host
-- Cost  O(1)
-- Idempotent  a repeat finds no supervisor or another one, and writes nothing
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
if redis.call('HGET', root .. ':supervisors', host) ~= supervisor then return 'taken' end
redis.call('HDEL', root .. ':supervisors', host)
return 'released'
