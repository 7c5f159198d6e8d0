-- release_host: release the host of a supervisor that stops, so that another one need not wait for the end of the
-- lease.
-- KEYS  root of the sandboxes
-- ARGV  host:text  supervisor:text its id
-- Returns  "released" | "taken": another supervisor has the lease of this host
-- Cost  O(1)
-- Idempotent  a repeat finds no supervisor or another one, and writes nothing
-- Kept  not proven: the work of a lost lease is claimed again
if redis.call('HGET', root .. ':supervisors', host) ~= supervisor then return 'taken' end
redis.call('HDEL', root .. ':supervisors', host)
return 'released'
