-- beat_host: a supervisor says that it lives; the sandboxes of hosts that no longer say so are MISSING, and those
-- that no host took in time have failed. One host has one supervisor at a time.
-- KEYS  1 root of the sandboxes
-- ARGV  1 host ("" none: only look after the others)   2 who the supervisor is   3 now, µs
--       4 a heartbeat that is older, in µs, is lost   5 a sandbox that waits for longer, in µs, has failed
-- Returns  "alive" | "taken": another supervisor speaks for this host
-- Cost  O(h + s): h hosts, s sandboxes of lost ones
-- Idempotent  a repeat writes the same
-- include: _sandbox.lua
local LEASE = 3000000 -- µs after a heartbeat for which no other supervisor may speak for the host
local host, supervisor, now, oldest, unclaimed = unpack(ARGV)
if host ~= '' then
  local holder = redis.call('HGET', root .. ':supervisors', host)
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if holder and holder ~= supervisor and beat and tonumber(beat) > now - LEASE then return 'taken' end
  redis.call('HSET', root .. ':supervisors', host, supervisor)
  redis.call('ZADD', root .. ':hosts', now, host)
end
for _, lost in ipairs(redis.call('ZRANGEBYSCORE', root .. ':hosts', '-inf', oldest)) do
  for _, id in ipairs(redis.call('SMEMBERS', root .. ':host:' .. lost)) do
    if field(id, 'wanted') == 'deleted' then
      remove(id)
    elseif SEEN[field(id, 'status')].MISSING then
      set_status(id, 'MISSING', now)
      redis.call('HSET', root .. ':box:' .. id, 'detail', 'Its host ' .. lost .. ' does not answer')
    end
  end
  redis.call('ZREM', root .. ':hosts', lost)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':unclaimed', '-inf', unclaimed)) do
  redis.call('ZREM', root .. ':unclaimed', id)
  set_status(id, 'ERROR', now)
  redis.call('HSET', root .. ':box:' .. id, 'detail', 'No supervisor has taken it: none runs, or all are busy')
end
return 'alive'
