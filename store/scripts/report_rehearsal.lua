-- report_rehearsal: store the results of a rehearsal so far, and renew the lease of its runner; or end it.
-- KEYS  root of the rules
-- ARGV  id:text  runner:text  state:text "running", "done" or "failed"  found:json  lease:int ms  kept:int ms
-- Returns  flag: false if another runner has it, or it has ended or is gone
-- Cost  O(log r): r running rehearsals
-- Idempotent  by runner: a repeat writes the same
-- Kept  not proven: after a loss the runner continues at an earlier report
-- Brings  bytes
-- include: _rehearsals.lua
local key = rehearsal_key(id)
local known = redis.call('HMGET', key, 'runner', 'state')
if known[1] ~= runner or known[2] ~= 'running' then return 0 end
redis.call('HSET', key, 'state', state, 'found', found)
redis.call('PEXPIRE', key, kept)
if state == 'running' then
  take_lease(id, lease)
else
  redis.call('ZREM', root .. ':rehearsals', id)
end
return 1
