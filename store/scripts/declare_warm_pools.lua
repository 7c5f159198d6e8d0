-- declare_warm_pools: set how many warm sandboxes each spec keeps, and of which version.
-- Earlier declarations are replaced: the warm sandboxes of unnamed specs end, and a pool of another version begins
-- without failures.
-- KEYS  root of the sandboxes
-- ARGV  pools:(spec:text version:text most:int)*
-- Returns  missing
-- Cost  O(p + w log s): p pools before and after, w warm sandboxes of unnamed specs, s sandboxes
-- Idempotent  a repeat writes the same
-- include: _sandbox.lua
local named = {}
for spec, version, most in pools() do
  named[spec] = true
  local key = root .. ':pool:' .. spec
  if redis.call('HGET', key, 'version') ~= version then redis.call('DEL', key) end
  redis.call('HSET', key, 'version', version, 'most', most)
  redis.call('SADD', root .. ':pools', spec)
end
for _, spec in ipairs(redis.call('SMEMBERS', root .. ':pools')) do
  if not named[spec] then
    for _, id in ipairs(redis.call('ZRANGE', root .. ':warm:' .. spec, 0, -1)) do discard(id) end
    redis.call('DEL', root .. ':pool:' .. spec)
    redis.call('SREM', root .. ':pools', spec)
  end
end
