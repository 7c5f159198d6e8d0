-- claim_rehearsal: continue a rehearsal whose runner is gone, unless the maximum number is running.
-- KEYS  root of the rules
-- ARGV  id:text  runner:text the new one  most:int maximum of running rehearsals  most_tries:int runners of a rehearsal
--       lease:int ms  kept:int ms
-- Returns  "claimed" | "held": its runner is alive, or the maximum is running | "ended"
--          | "given_up": too many runners are gone
-- Cost  O(log r): r running rehearsals
-- Idempotent  by its runner: a repeat finds it held
-- include: _rehearsals.lua
local key = rehearsal_key(id)
if redis.call('HGET', key, 'state') ~= 'running' then return 'ended' end
local lease_end = redis.call('ZSCORE', root .. ':rehearsals', id)
if lease_end and tonumber(lease_end) > tonumber(now) then return 'held' end
if at_work() >= most then return 'held' end
if tonumber(redis.call('HGET', key, 'tries')) >= most_tries then
  redis.call('HSET', key, 'state', 'failed')
  redis.call('ZREM', root .. ':rehearsals', id)
  return 'given_up'
end
redis.call('HSET', key, 'runner', runner)
redis.call('HINCRBY', key, 'tries', 1)
redis.call('PEXPIRE', key, kept)
take_lease(id, lease)
return 'claimed'
