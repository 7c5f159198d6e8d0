-- return_workspace: return a workspace sandbox to its key, because the start task that adopted it has failed.
-- KEYS  root of the sandboxes
-- ARGV  id:text  start:text id of the start task
-- Returns  flag: false if no start task has adopted it, it is being deleted, or its key has another one by now. True
--          also if a later start task of its key has it, or has returned it: this start task must not delete it
-- Cost  O(1)
-- Idempotent  a repeat finds it returned
-- include: _sandbox.lua
local adopted, owner, wanted = unpack(redis.call('HMGET', root .. ':box:' .. id, 'adopted', 'owner', 'wanted'))
if not adopted or not owner or wanted == 'deleted' then return 0 end
if adopted ~= start then return 1 end
if redis.call('GET', root .. ':claimed:' .. start) == id then redis.call('DEL', root .. ':claimed:' .. start) end
redis.call('HSETNX', root .. ':workspaces', owner, id)
return redis.call('HGET', root .. ':workspaces', owner) == id and 1 or 0
