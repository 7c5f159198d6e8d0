-- report_sandbox: write the observed state of a host's sandbox.
-- A status that cannot follow is not written. When a sandbox runs, its conversations are compared with their agents.
-- KEYS  root of the sandboxes
-- ARGV  id:text  host:text  supervisor:text its id
--       status:text "" unchanged; "GONE" it is deleted; "LEFT" likewise, and another folder of the host has its files
--       log:text its last lines, "" unchanged  fields:map*
-- Returns  "noted" | "passed": the status cannot follow | "taken": another supervisor has the lease of this host
--          | missing: no such sandbox on this host
-- Cost  O(log s): s sandboxes; when it runs also O(p log c): p places of it, c conversations in the due index
-- Idempotent  a repeat writes the same
-- include: _sandbox.lua
-- include: _checks.lua
local speaks = speaks_for(id, host, supervisor)
if speaks == nil then return false end
if not speaks then return 'taken' end
if status == 'GONE' or status == 'LEFT' then
  remove(id, status == 'LEFT' and 'kept')
  return 'noted'
end
local present = field(id, 'status')
-- Its supervisor paused it while a client requested a resume, so it is STARTING.
if status == 'PAUSED' and field(id, 'wanted') == 'running' and present ~= 'STARTING' then
  status = 'STARTING'
  redis.call('HSET', root .. ':box:' .. id, 'starting_at', now)
end
if status == 'ERROR' and redis.call('HDEL', root .. ':box:' .. id, 'leaving') == 1 then note_change(id) end
if status ~= '' and status ~= present then
  if not SEEN[present][status] then return 'passed' end
  set_status(id, status)
  -- Its idle time begins when it runs, however long its start took.
  if status == 'RUNNING' then
    redis.call('HSET', root .. ':box:' .. id, 'active_at', now)
    check_all(id)
  end
end
if log ~= '' then redis.call('SET', root .. ':log:' .. id, log) end
if #fields > 0 then
  redis.call('HSET', root .. ':box:' .. id, unpack(fields))
  note_change(id)
end
return 'noted'
