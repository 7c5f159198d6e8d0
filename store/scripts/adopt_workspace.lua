-- adopt_workspace: bind the workspace sandbox of a key to a start task of the key, with the files that were uploaded.
-- KEYS  root of the sandboxes
-- ARGV  owner:text id of the key  spec:text its id  start:text id of the start task
--       gives_way:flag whether it may be paused for others while it is idle
-- Returns  text: its id | missing: there is none of that spec, or the start task has ended
-- Cost  O(1)
-- Idempotent  by start task, for an hour: a repeat returns the same sandbox, unless it is being deleted
-- include: _sandbox.lua
if redis.call('EXISTS', root .. ':ended:' .. start) == 1 then return false end
local key = root .. ':claimed:' .. start
local had = redis.call('GET', key)
if had and field(had, 'adopted') == start and field(had, 'wanted') ~= 'deleted' then return had end
local id = redis.call('HGET', root .. ':workspaces', owner)
if not id then return false end
local fits = {STARTING = true, RUNNING = true, PAUSED = true}
local status, wanted, of = unpack(redis.call('HMGET', root .. ':box:' .. id, 'status', 'wanted', 'spec_id'))
if not fits[status] or wanted == 'deleted' or of ~= spec then return false end
redis.call('HDEL', root .. ':workspaces', owner)
redis.call('HSET', root .. ':box:' .. id, 'adopted', start, 'gives_way', gives_way and '1' or '')
redis.call('SET', key, id, 'EX', 3600)
return id
