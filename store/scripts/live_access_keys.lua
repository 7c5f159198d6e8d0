-- live_access_keys: return which keys are neither revoked nor expired, and which people have lost no right.
-- KEYS  root of the access keys
-- ARGV  ids:text*
-- Returns  text*: their ids
-- Cost  O(i): i ids
-- Idempotent  reads only
-- include: _access.lua
local live = {}
for _, id in ipairs(ids) do
  if is_live(id) or redis.call('HEXISTS', root .. ':people', id) == 1 then live[#live + 1] = id end
end
return live
