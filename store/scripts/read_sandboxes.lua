-- read_sandboxes: return sandboxes by id, or all of one host, after the sandboxes of lost hosts are marked MISSING.
-- KEYS  root of the sandboxes
-- ARGV  spans:spans  host:text "" those of the ids  ids:text*
-- Returns  (at:micros found:hash*): an unknown one is empty
-- Cost  O(n): n sandboxes plus the cost of newly lost hosts (beat_host)
-- Idempotent  a repeat finds the lost ones marked
-- Kept  not proven: the next read does it again
-- include: _lost.lua
mark_lost_sandboxes(spans.host, spans.start)
if host ~= '' then ids = redis.call('SMEMBERS', root .. ':host:' .. host) end
local found = {now}
for _, id in ipairs(ids) do found[#found + 1] = redis.call('HGETALL', root .. ':box:' .. id) end
return found
