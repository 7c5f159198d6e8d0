-- keep_fields: keep fields of a sandbox or a conversation that no client sees change: neither a revision nor a time does.
-- KEYS  1 its hash: conv:{id}, or {sandboxes}:box:ID
-- ARGV  name, value, …
-- Returns  1 | false: it does not exist
-- Cost  O(1)
-- Idempotent  a repeat finds the fields set
if redis.call('EXISTS', root) == 0 then return false end
redis.call('HSET', root, unpack(ARGV))
return 1
