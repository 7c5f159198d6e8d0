-- revoke_access_key: delete an access key. Requests with it are then refused.
-- KEYS  root of the access keys
-- ARGV  id:text  request:text id of the request
-- Returns  flag: whether the key existed
-- Cost  O(log k): k keys
-- Idempotent  by id of the request, for a minute
-- include: _access.lua
if redis.call('GET', root .. ':revoked:' .. id) == request then return 1 end
if redis.call('EXISTS', root .. ':key:' .. id) == 0 then return 0 end
forget(id)
redis.call('SET', root .. ':revoked:' .. id, request, 'PX', 60000)
return 1
