-- name_owner: note who made a conversation that has no owner yet: a copy, or one that is adopted.
-- KEYS  root of the conversation
-- ARGV  owner:text
-- Returns  flag: whether this call noted it
-- Cost  O(1)
-- Idempotent  a repeat finds the owner
if redis.call('HEXISTS', root, 'id') == 0 then return 0 end
return redis.call('HSETNX', root, 'owner', owner)
