-- change_settings: change the entries of a key, unless they have changed since they were read.
-- KEYS  root of what the key keeps
-- ARGV  before:int revision that was read; 0: there was nothing  id:text of the request  most:int entries
--       most_bytes:int of all  changes:(name:text value:bytes)* sealed; "" removes the entry
-- Returns  "changed" | "stale" | "many" | "long"
-- Cost  O(e): e entries of the key
-- Idempotent  by id of the request, until the next change
-- Brings  bytes
local revision, request = unpack(redis.call('HMGET', root, 'revision', 'request'))
if request == id then return 'changed' end
if tonumber(revision or 0) ~= before then return 'stale' end
local sizes, entries, bytes = {}, 0, 0
for _, name in ipairs(redis.call('HKEYS', root)) do
  if name:sub(1, 3) == 'of:' then sizes[name] = redis.call('HSTRLEN', root, name) end
end
local sets = false
for name, value in changes() do
  sets = sets or value ~= ''
  sizes['of:' .. name] = value ~= '' and #value or nil
end
for _, size in pairs(sizes) do
  entries = entries + 1
  bytes = bytes + size
end
if sets and entries > most then return 'many' end
if sets and bytes > most_bytes then return 'long' end
for name, value in changes() do
  if value == '' then redis.call('HDEL', root, 'of:' .. name) else redis.call('HSET', root, 'of:' .. name, value) end
end
redis.call('HSET', root, 'revision', before + 1, 'request', id)
return 'changed'
