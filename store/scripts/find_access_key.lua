-- find_access_key: the key of a hash, unless it was revoked or has expired. A use is noted once a minute.
-- KEYS  1 root of the keys of access
-- ARGV  1 SHA-256 of the key
-- Returns  {id, name, scopes, µs until it expires (empty: never)} | false
-- Cost  O(1)
-- Idempotent  a repeat notes the same use
-- Kept  not proven: a use is noted in passing
-- include: _access.lua
local id = redis.call('HGET', root .. ':digests', ARGV[1])
if not id or not is_live(id) then return false end
local name, scopes, expires, used = unpack(redis.call('HMGET', root .. ':key:' .. id, 'name', 'scopes', 'expires_at', 'used_at'))
if used == '' or tonumber(now) - tonumber(used) > 60000000 then
  redis.call('HSET', root .. ':key:' .. id, 'used_at', now)
end
return {id, name, scopes, expires == '' and '' or string.format('%.0f', tonumber(expires) - tonumber(now))}
