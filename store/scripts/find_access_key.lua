-- find_access_key: the key of a hash, unless it was revoked or has expired. A use is noted once a minute.
-- KEYS  root of the access keys
-- ARGV  digest:text SHA-256 of the key
-- Returns  (id:text name:text scopes:text left:micros? person:text): until it expires, absent where it never does; whose it is, "" nobody's | missing
-- Cost  O(1)
-- Idempotent  a repeat notes the same use
-- Kept  not proven: a use is noted in passing
-- include: _access.lua
local id = redis.call('HGET', root .. ':digests', digest)
if not id or not is_live(id) then return false end
local name, scopes, expires, used, person = unpack(redis.call('HMGET', root .. ':key:' .. id, 'name', 'scopes', 'expires_at',
  'used_at', 'person'))
if used == '' or tonumber(now) - tonumber(used) > 60000000 then
  redis.call('HSET', root .. ':key:' .. id, 'used_at', now)
end
return {id, name, scopes, expires ~= '' and string.format('%.0f', tonumber(expires) - tonumber(now)), person or ''}
