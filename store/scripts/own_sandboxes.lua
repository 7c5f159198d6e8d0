-- own_sandboxes: the sandboxes that run, are bound and were started by a key.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id of the key
-- Returns  their ids, in order
-- Cost  O(o log o): o sandboxes of the key, whatever their status
-- Idempotent  reads only
-- Log  none
-- include: _clock.lua
-- include: _sandbox.lua
local found = {}
for _, id in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. ARGV[1])) do
  if field(id, 'status') == 'RUNNING' and field(id, 'wanted') == 'running' and not is_warm(id) then found[#found + 1] = id end
end
table.sort(found)
return found
