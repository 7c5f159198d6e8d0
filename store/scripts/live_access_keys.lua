-- live_access_keys: which of some keys have neither been revoked nor expired.
-- KEYS  root of the access keys
-- ARGV  ids:text*
-- Returns  text*: the ids of those
-- Cost  O(i): i ids
-- Idempotent  reads only
-- include: _access.lua
local live = {}
for _, id in ipairs(ids) do
  if is_live(id) then live[#live + 1] = id end
end
return live
