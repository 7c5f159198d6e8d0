-- name_owner: record who made a conversation without an owner: a copy, or an adopted one.
-- KEYS  root of the conversation
-- ARGV  owner:text
-- Returns  flag: whether this call recorded it
-- Cost  O(1)
-- Idempotent  a repeat finds the owner
if redis.call('HEXISTS', root, 'id') == 0 then return 0 end
return redis.call('HSETNX', root, 'owner', owner)
