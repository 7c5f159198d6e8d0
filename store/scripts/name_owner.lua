-- name_owner: record who made a conversation without an owner: a copy, or an adopted one.
-- KEYS  root of the conversation
-- ARGV  owner:text
-- Returns  flag: whether this call recorded it
-- Cost  O(1)
-- Idempotent  a repeat finds the owner
-- include: _clock.lua
if redis.call('HEXISTS', root, 'id') == 0 then return 0 end
if redis.call('HSETNX', root, 'owner', owner) == 0 then return 0 end
-- Lists show the owner, and keep what they show for a version: see `store/conversations/lists.py`.
local before = tonumber(redis.call('HGET', root, 'approvals') or 0)
redis.call('HSET', root, 'approvals', string.format('%.0f', math.max(tonumber(now), before + 1)))
return 1
