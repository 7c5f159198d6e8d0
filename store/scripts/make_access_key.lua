-- make_access_key: keep a key by its hash, once per id. Where there is no room, those that expired are forgotten first.
-- KEYS  1 root of the keys of access
-- ARGV  1 id   2 SHA-256 of the key   3 name   4 scopes, joined by commas   5 µs at which it expires (empty: never)
--       6 most keys
-- Returns  {"made", when it was made, µs} | {"full"} | {"past"}: it would have expired already
-- Cost  O(log k), and where there is no room O(k): k keys
-- Idempotent  by id
-- include: _access.lua
local created = redis.call('HGET', root .. ':key:' .. ARGV[1], 'created_at')
if created then return {'made', created} end
if ARGV[5] ~= '' and tonumber(ARGV[5]) <= tonumber(now) then return {'past'} end
if redis.call('ZCARD', root .. ':created') >= tonumber(ARGV[6]) then
  for _, id in ipairs(redis.call('ZRANGE', root .. ':created', 0, -1)) do
    if not is_live(id) then forget(id) end
  end
  if redis.call('ZCARD', root .. ':created') >= tonumber(ARGV[6]) then return {'full'} end
end
redis.call('HSET', root .. ':key:' .. ARGV[1], 'id', ARGV[1], 'digest', ARGV[2], 'name', ARGV[3], 'scopes', ARGV[4],
  'expires_at', ARGV[5], 'created_at', now, 'used_at', '')
redis.call('HSET', root .. ':digests', ARGV[2], ARGV[1])
redis.call('ZADD', root .. ':created', now, ARGV[1])
return {'made', now}
