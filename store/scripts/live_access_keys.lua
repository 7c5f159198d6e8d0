-- live_access_keys: which of some keys have neither been revoked nor expired.
-- KEYS  1 root of the keys of access
-- ARGV  ids
-- Returns  {the ids of those}
-- Cost  O(i): i ids
-- Idempotent  reads only
-- include: _access.lua
local live = {}
for _, id in ipairs(ARGV) do
  if is_live(id) then live[#live + 1] = id end
end
return live
