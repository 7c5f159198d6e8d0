-- find_access_key: return the key with a hash, unless it was revoked or has expired.
-- Records a use, at most once a minute.
-- KEYS  root of the access keys
-- ARGV  digest:text SHA-256 of the key
-- Returns  (id:text name:text scopes:text left:micros? person:text): µs until it expires, absent for never; its owner,
--          "" none | missing
-- Cost  O(1)
-- Idempotent  a repeat records the same use
-- Kept  not proven: a lost use does no harm
-- include: _access.lua
local id = redis.call('HGET', root .. ':digests', digest)
if not id or not is_live(id) then return false end
local name, scopes, expires, used, person = unpack(redis.call('HMGET', root .. ':key:' .. id, 'name', 'scopes', 'expires_at',
  'used_at', 'person'))
if used == '' or tonumber(now) - tonumber(used) > 60000000 then
  redis.call('HSET', root .. ':key:' .. id, 'used_at', now)
end
return {id, name, scopes, expires ~= '' and string.format('%.0f', tonumber(expires) - tonumber(now)), person or ''}
