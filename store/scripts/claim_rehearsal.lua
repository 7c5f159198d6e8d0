-- claim_rehearsal: take up a rehearsal whose runner has gone without an end, unless as many run as may.
-- KEYS  root of the rules
-- ARGV  id:text  runner:text the new one  most:int that may run at once  most_tries:int runners of one rehearsal
--       lease:int ms  kept:int ms
-- Returns  "claimed" | "held": its runner is at work, or others are | "ended": it is over | "given_up": too many have gone
-- Cost  O(log r): r rehearsals that run
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
