-- list_access_keys: return all keys, the newest first.
-- KEYS  root of the access keys
-- ARGV  none
-- Returns  hash*
-- Cost  O(k): k keys
-- Idempotent  reads only
local found = {}
for _, id in ipairs(redis.call('ZREVRANGE', root .. ':created', 0, -1)) do
  found[#found + 1] = redis.call('HGETALL', root .. ':key:' .. id)
end
return found
