-- make_access_key: store a key by its hash, once per id.
-- Without room, expired keys are deleted first.
-- KEYS  root of the access keys
-- ARGV  id:text  digest:text SHA-256 of the key  expires_at:micros? absent: never  most:int keys  fields:map*
-- Returns  "made"(created_at:micros) | "full" | "past": it would already have expired
-- Cost  O(log k), without room O(k): k keys
-- Idempotent  by id
-- include: _access.lua
local created = redis.call('HGET', root .. ':key:' .. id, 'created_at')
if created then return {'made', created} end
if expires_at ~= '' and tonumber(expires_at) <= tonumber(now) then return 'past' end
if redis.call('ZCARD', root .. ':created') >= most then
  for _, other in ipairs(redis.call('ZRANGE', root .. ':created', 0, -1)) do
    if not is_live(other) then forget(other) end
  end
  if redis.call('ZCARD', root .. ':created') >= most then return 'full' end
end
redis.call('HSET', root .. ':key:' .. id, 'expires_at', expires_at, 'created_at', now, 'used_at', '', unpack(fields))
redis.call('HSET', root .. ':digests', digest, id)
redis.call('ZADD', root .. ':created', now, id)
return {'made', now}
