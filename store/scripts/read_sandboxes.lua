-- read_sandboxes: sandboxes by id, or all of one host, after the sandboxes of lost hosts are marked MISSING.
-- KEYS  1 root of the sandboxes
-- ARGV  1 a heartbeat that is older, µs, is lost   2 a sandbox that waits longer for a host, µs, has failed
--       3 host ("" those of the ids)   then ids
-- Returns  {now, µs, fields and values of each; none of an unknown one}
-- Cost  O(n): n sandboxes, and what a host that was just lost costs (beat_host)
-- Idempotent  a repeat finds the lost ones marked
-- Kept  not proven: what a read finds lost, the next one finds again
-- include: _lost.lua
look_after_the_lost(ARGV[1], ARGV[2])
local ids = ARGV[3] == '' and {unpack(ARGV, 4)} or redis.call('SMEMBERS', root .. ':host:' .. ARGV[3])
local found = {now}
for _, id in ipairs(ids) do found[#found + 1] = redis.call('HGETALL', root .. ':box:' .. id) end
return found
