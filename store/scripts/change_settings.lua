-- change_settings: change what a key keeps, unless somebody has changed it since it was read.
-- KEYS  1 root of what the key keeps
-- ARGV  1 revision that was read; 0: there was nothing   2 id of the request   3 most entries   4 most bytes of all
--   5 number of entries to set   then name, sealed value, … and after them names of entries to remove
-- Returns  {"changed"} | {"stale"} | {"many"} | {"long"}
-- Cost  O(e): e entries of the key
-- Idempotent  by id of the request, until the next change
-- Brings  bytes
local revision, request = unpack(redis.call('HMGET', root, 'revision', 'request'))
if request == ARGV[2] then return {'changed'} end
if (revision or '0') ~= ARGV[1] then return {'stale'} end
local sizes, entries, bytes = {}, 0, 0
for _, name in ipairs(redis.call('HKEYS', root)) do
  if name:sub(1, 3) == 'of:' then sizes[name] = redis.call('HSTRLEN', root, name) end
end
local sets, after = {}, 5 + 2 * tonumber(ARGV[5])
for i = 6, after, 2 do
  sets[#sets + 1] = 'of:' .. ARGV[i]
  sets[#sets + 1] = ARGV[i + 1]
  sizes['of:' .. ARGV[i]] = #ARGV[i + 1]
end
for i = after + 1, #ARGV do sizes['of:' .. ARGV[i]] = nil end
for _, size in pairs(sizes) do
  entries = entries + 1
  bytes = bytes + size
end
if #sets > 0 and entries > tonumber(ARGV[3]) then return {'many'} end
if #sets > 0 and bytes > tonumber(ARGV[4]) then return {'long'} end
for i = 1, #sets, 2 do redis.call('HSET', root, sets[i], sets[i + 1]) end
for i = after + 1, #ARGV do redis.call('HDEL', root, 'of:' .. ARGV[i]) end
redis.call('HSET', root, 'revision', tonumber(ARGV[1]) + 1, 'request', ARGV[2])
return {'changed'}
