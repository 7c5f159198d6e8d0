-- return_workspace: give a workspace sandbox back to its key, as the start task that has adopted it failed.
-- KEYS  root of the sandboxes
-- ARGV  id:text  start:text id of the start task
-- Returns  flag: false where no start has adopted it, it is being deleted, or its key has another one by now. Also true
--          where a later start of its key has it, or has given it back: it is not the start task's to delete
-- Cost  O(1)
-- Idempotent  a repeat finds it given back
-- include: _sandbox.lua
local adopted, owner, wanted = unpack(redis.call('HMGET', root .. ':box:' .. id, 'adopted', 'owner', 'wanted'))
if not adopted or not owner or wanted == 'deleted' then return 0 end
if adopted ~= start then return 1 end
if redis.call('GET', root .. ':claimed:' .. start) == id then redis.call('DEL', root .. ':claimed:' .. start) end
redis.call('HSETNX', root .. ':workspaces', owner, id)
return redis.call('HGET', root .. ':workspaces', owner) == id and 1 or 0
