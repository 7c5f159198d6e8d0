-- list_access_keys: all keys, the newest first, without what they are looked up by.
-- KEYS  root of the access keys
-- ARGV  none
-- Returns  (id:text name:text scopes:text created_at:micros expires_at:micros? used_at:micros?)*: absent is never
-- Cost  O(k): k keys
-- Idempotent  reads only
local found = {}
for _, id in ipairs(redis.call('ZREVRANGE', root .. ':created', 0, -1)) do
  local key = redis.call('HMGET', root .. ':key:' .. id, 'id', 'name', 'scopes', 'created_at', 'expires_at', 'used_at')
  for _, value in ipairs(key) do found[#found + 1] = value ~= '' and value end
end
return found
