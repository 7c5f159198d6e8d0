-- revoke_access_key: forget a key, which opens nothing from now on.
-- KEYS  1 root of the keys of access
-- ARGV  1 id   2 id of the request
-- Returns  1 | 0: there is no such key
-- Cost  O(log k): k keys
-- Idempotent  by id of the request, for a minute
-- include: _access.lua
if redis.call('GET', root .. ':revoked:' .. ARGV[1]) == ARGV[2] then return 1 end
if redis.call('EXISTS', root .. ':key:' .. ARGV[1]) == 0 then return 0 end
forget(ARGV[1])
redis.call('SET', root .. ':revoked:' .. ARGV[1], ARGV[2], 'PX', 60000)
return 1
