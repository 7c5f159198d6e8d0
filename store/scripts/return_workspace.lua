-- return_workspace: give a workspace sandbox back to its key, as the start task that has adopted it failed.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 id of the start task
-- Returns  1 | 0: the start task has not adopted it, it is being deleted, or its key has another one by now
-- Cost  O(1)
-- Idempotent  a repeat finds it given back
-- Log  none
-- Kept  proven
-- include: _clock.lua
-- include: _sandbox.lua
local id, start = unpack(ARGV)
local adopted, owner, wanted = unpack(redis.call('HMGET', root .. ':box:' .. id, 'adopted', 'owner', 'wanted'))
if adopted ~= start or not owner or wanted == 'deleted' then return 0 end
redis.call('HSETNX', root .. ':workspaces', owner, id)
return redis.call('HGET', root .. ':workspaces', owner) == id and 1 or 0
