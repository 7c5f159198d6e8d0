-- name_workspace: return the workspace sandbox of a key, which serves its calls before it has a conversation; or the id
-- of a new one that the caller must start. Concurrent callers of a key get the same id. One that failed before it ran
-- is deleted.
-- KEYS  root of the sandboxes
-- ARGV  owner:text id of the key  fresh:text id of a new sandbox  host_span:int age in µs at which a heartbeat is lost
-- Returns  text: id of the sandbox | missing: no live host
-- Cost  O(log h): h hosts
-- Idempotent  by key: a repeat gets the same id
-- include: _sandbox.lua
local id = redis.call('HGET', root .. ':workspaces', owner)
local is_kept = id and redis.call('EXISTS', root .. ':ended:' .. id) == 0 and field(id, 'wanted') ~= 'deleted'
if is_kept and field(id, 'status') ~= 'ERROR' then return id end
if is_kept and (field(id, 'working_dir') or '') == '' then end_sandbox(id) end -- it never ran, so it has no files
if redis.call('ZCOUNT', root .. ':hosts', now - host_span, '+inf') == 0 then return false end
redis.call('HSET', root .. ':workspaces', owner, fresh)
return fresh
