-- stop_sandbox: record that the processes of a sandbox have ended and its files are kept.
-- It is PAUSED, or STARTING if a client has requested a resume since its supervisor read it. A sandbox that has failed
-- or is to be deleted keeps its status.
-- KEYS  root of the sandboxes
-- ARGV  id:text  host:text  supervisor:text its id  seen:text the desired state that the supervisor read  detail:text
--       log:text its last lines, "" unchanged  resumes:flag whether it resumes when its server is back
-- Returns  "noted" | "taken": another supervisor has the lease of this host | missing: no such sandbox on this host
-- Cost  O(log s): s sandboxes
-- Idempotent  a repeat writes the same
-- include: _sandbox.lua
local speaks = speaks_for(id, host, supervisor)
if speaks == nil then return false end
if not speaks then return 'taken' end
local wanted = field(id, 'wanted')
close_keys(id)
redis.call('HSET', root .. ':box:' .. id, 'handle', '', 'agent_url', '', 'urls', '[]', 'detail', detail, 'resumes',
  resumes and '1' or '')
note_change(id)
if log ~= '' then redis.call('SET', root .. ':log:' .. id, log) end
if wanted == 'running' and seen == 'paused' and field(id, 'status') ~= 'ERROR' then
  set_status(id, 'STARTING')
  redis.call('HSET', root .. ':box:' .. id, 'starting_at', now)
elseif wanted ~= 'deleted' and field(id, 'status') ~= 'ERROR' then
  redis.call('HSET', root .. ':box:' .. id, 'wanted', 'paused')
  set_status(id, 'PAUSED')
end
return 'noted'
