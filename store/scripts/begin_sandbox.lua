-- begin_sandbox: number a start of a sandbox's processes. Every start but the first has a session key of its own: the
-- processes of an earlier start, should any live, can post nothing.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 host   3 who the supervisor is   4 session key   5 its hash   6 runtime
-- Returns  "begun" | "passed": it failed or is not to run | "taken": another supervisor speaks for this host
--          | false: no such sandbox on this host
-- Cost  O(1)
-- Idempotent  by the session key; of the first start a repeat counts once more, and its key stays
-- include: _clock.lua
-- include: _sandbox.lua
local id, host, supervisor, key, hash, runtime = unpack(ARGV)
local speaks = speaks_for(id, host, supervisor)
if speaks == nil then return false end
if not speaks then return 'taken' end
if field(id, 'wanted') ~= 'running' or field(id, 'status') == 'ERROR' then return 'passed' end
if field(id, 'key_hash') == hash then return 'begun' end
if redis.call('HINCRBY', root .. ':box:' .. id, 'start', 1) > 1 then
  close_key(id)
  redis.call('HSET', root .. ':box:' .. id, 'session_api_key', key, 'key_hash', hash)
end
redis.call('HSET', root .. ':keys', field(id, 'key_hash'), id)
redis.call('HSET', root .. ':box:' .. id, 'starting_at', now, 'handle', '', 'agent_url', '', 'urls', '[]', 'resumes', '',
  'runtime', runtime)
return 'begun'
