-- begin_sandbox: number a start of a sandbox's processes, with two new keys.
-- Surviving processes of an earlier start can then post nothing.
-- KEYS  root of the sandboxes
-- ARGV  id:text  host:text  supervisor:text its id  agent_key:text key of its agent server, sealed
--       hook_hash:text of its hook key  runtime:text  session_hash:text of its session key
--       folder:text of the host that has its files, "" none  hidden:text secrets of its processes, sealed
-- Returns  "begun" | "passed": it has failed, or is not to run | "taken": another supervisor has the lease of this host
--          | missing: no such sandbox on this host
-- Cost  O(1)
-- Idempotent  by the hook key
-- include: _sandbox.lua
local speaks = speaks_for(id, host, supervisor)
if speaks == nil then return false end
if not speaks then return 'taken' end
if field(id, 'wanted') ~= 'running' or field(id, 'status') == 'ERROR' then return 'passed' end
if field(id, 'hook_hash') == hook_hash then return 'begun' end
close_keys(id)
redis.call('HINCRBY', root .. ':box:' .. id, 'start', 1)
redis.call('HSET', root .. ':keys', hook_hash, id, 'session ' .. session_hash, id)
redis.call('HSET', root .. ':box:' .. id, 'agent_key', agent_key, 'hook_hash', hook_hash, 'session_hash', session_hash, 'starting_at', now, 'handle', '',
  'agent_url', '', 'urls', '[]', 'resumes', '', 'runtime', runtime, 'folder', folder, 'hidden', hidden)
note_change(id)
return 'begun'
