-- own_sandboxes: return the running and paused sandboxes that are bound and were started by a key.
-- KEYS  root of the sandboxes
-- ARGV  owner:text id of the key
-- Returns  (running:text[] paused:text[]): their ids, in order
-- Cost  O(o log o): o sandboxes of the key, whatever their status
-- Idempotent  reads only
-- include: _sandbox.lua
local running, paused = {}, {}
for _, id in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. owner)) do
  local status, wanted = field(id, 'status'), field(id, 'wanted')
  if not is_warm(id) then
    if status == 'RUNNING' and wanted == 'running' then running[#running + 1] = id end
    if status == 'PAUSED' and wanted == 'paused' then paused[#paused + 1] = id end
  end
end
table.sort(running)
table.sort(paused)
return {running, paused}
