-- open_rehearsal: keep a rehearsal that its runner begins now, unless as many run as may.
-- KEYS  root of the rules
-- ARGV  id:text  runner:text  draft:json  most:int that may run at once  lease:int of the runner, ms  kept:int ms
-- Returns  "opened" | "again": a repeat, which runs or ran already | "full"
-- Cost  O(r): r rehearsals that run
-- Idempotent  by id
-- Brings  bytes
-- include: _rehearsals.lua
local key = rehearsal_key(id)
if redis.call('EXISTS', key) == 1 then return 'again' end
redis.call('ZREMRANGEBYSCORE', root .. ':rehearsals', '-inf', string.format('%.0f', now - kept * 1000))
if at_work() >= most then return 'full' end
redis.call('HSET', key, 'state', 'running', 'runner', runner, 'draft', draft, 'tries', 1)
redis.call('PEXPIRE', key, kept)
take_lease(id, lease)
return 'opened'
