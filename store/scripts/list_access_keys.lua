-- list_access_keys: all keys, the newest first, without what they are looked up by.
-- KEYS  1 root of the keys of access
-- ARGV  none
-- Returns  {{id, name, scopes, created_at, expires_at, used_at (µs, empty: never)}, …}
-- Cost  O(k): k keys
-- Idempotent  reads only
local found = {}
for _, id in ipairs(redis.call('ZREVRANGE', root .. ':created', 0, -1)) do
  found[#found + 1] = redis.call('HMGET', root .. ':key:' .. id, 'id', 'name', 'scopes', 'created_at', 'expires_at', 'used_at')
end
return found
