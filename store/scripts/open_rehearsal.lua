-- open_rehearsal: store a rehearsal that its runner begins now, unless the maximum number is running.
-- KEYS  root of the rules
-- ARGV  id:text  runner:text  draft:json  most:int maximum of running rehearsals  lease:int of the runner, ms
--       kept:int ms
-- Returns  "opened" | "again": a repeat, which is running or has ended | "full"
-- Cost  O(r): r running rehearsals
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
