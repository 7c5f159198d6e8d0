-- name_workspace: the workspace sandbox of a key, which its calls reach before it has a conversation; where it has none, the
-- id of one that the caller starts. Callers of one key get one id. One that failed before it ran is deleted.
-- KEYS  root of the sandboxes
-- ARGV  owner:text id of the key  fresh:text id of a new sandbox  host_span:int age in µs at which a heartbeat counts as lost
-- Returns  text: id of the sandbox | missing: no host lives
-- Cost  O(log h): h hosts
-- Idempotent  by key: a repeat gets the same id
-- include: _sandbox.lua
local id = redis.call('HGET', root .. ':workspaces', owner)
local is_kept = id and redis.call('EXISTS', root .. ':ended:' .. id) == 0 and field(id, 'wanted') ~= 'deleted'
if is_kept and field(id, 'status') ~= 'ERROR' then return id end
if is_kept and (field(id, 'working_dir') or '') == '' then end_sandbox(id) end -- it never ran: nothing is in it
if redis.call('ZCOUNT', root .. ':hosts', now - host_span, '+inf') == 0 then return false end
redis.call('HSET', root .. ':workspaces', owner, fresh)
return fresh
