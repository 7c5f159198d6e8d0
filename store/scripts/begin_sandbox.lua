-- begin_sandbox: number a start of a sandbox's processes, which has two keys of its own: the processes of an earlier start,
-- should any live, can post nothing.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 host   3 who the supervisor is   4 key of its agent server, sealed   5 hash of its hook key   6 runtime
--       7 hash of its session key   8 folder of the host that has its files ("" none)   9 secrets of its processes, sealed
-- Returns  "begun" | "passed": it failed or is not to run | "taken": another supervisor holds the lease of this host
--          | false: no such sandbox on this host
-- Cost  O(1)
-- Idempotent  by the hook key
-- include: _sandbox.lua
local id, host, supervisor, agent_key, hash, runtime, session_hash, folder, hidden = unpack(ARGV)
local speaks = speaks_for(id, host, supervisor)
if speaks == nil then return false end
if not speaks then return 'taken' end
if field(id, 'wanted') ~= 'running' or field(id, 'status') == 'ERROR' then return 'passed' end
if field(id, 'hook_hash') == hash then return 'begun' end
close_keys(id)
redis.call('HINCRBY', root .. ':box:' .. id, 'start', 1)
redis.call('HSET', root .. ':keys', hash, id, 'session ' .. session_hash, id)
redis.call('HSET', root .. ':box:' .. id, 'agent_key', agent_key, 'hook_hash', hash, 'session_hash', session_hash, 'starting_at', now, 'handle', '',
  'agent_url', '', 'urls', '[]', 'resumes', '', 'runtime', runtime, 'folder', folder, 'hidden', hidden)
note_change(id)
return 'begun'
