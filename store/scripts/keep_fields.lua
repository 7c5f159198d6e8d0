-- keep_fields: store internal fields of a sandbox or a conversation, without a new revision or time.
-- KEYS  its hash: conv:{id}, or {sandboxes}:box:ID
-- ARGV  fields:map*
-- Returns  flag: whether it exists
-- Cost  O(1)
-- Idempotent  a repeat finds the fields set
if redis.call('EXISTS', root) == 0 then return 0 end
redis.call('HSET', root, unpack(fields))
return 1
