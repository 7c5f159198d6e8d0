-- adopt_workspace: bind the workspace sandbox of a key to a start task of that key, so that what was uploaded is there.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id of the key   2 spec id   3 id of the start task   4 "1": it gives way to others while it is idle
-- Returns  its id | false: there is none of that spec, or the start task has ended
-- Cost  O(1)
-- Idempotent  by start task, for an hour: a repeat finds the same sandbox, unless it is being deleted
-- include: _sandbox.lua
local owner, spec, start, gives_way = unpack(ARGV)
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
redis.call('HSET', root .. ':box:' .. id, 'adopted', start, 'gives_way', gives_way)
redis.call('SET', key, id, 'EX', 3600)
return id
