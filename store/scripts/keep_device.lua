-- keep_device: store a device, or renew it.
-- Deletes expired devices first.
-- KEYS  root of the notifications
-- ARGV  id:text  owner:text  lasts:int seconds  most:int devices  most_own:int of the owner  fields:map*
-- Returns  "kept"(renewed_at:micros expires_at:micros) | "full" | "own full": the owner has the maximum
-- Cost  O(d): d devices
-- Idempotent  by id
-- Brings  bytes
-- include: _clock.lua
-- include: _devices.lua
for _, old in ipairs(redis.call('ZRANGEBYSCORE', root .. ':devices', '-inf', now)) do end_device(old) end
local known, own = redis.call('ZRANGE', root .. ':devices', 0, -1), 0
for _, other in ipairs(known) do
  if other ~= id and redis.call('HGET', root .. ':device:' .. other, 'owner') == owner then own = own + 1 end
end
if own >= most_own then return {'own full'} end
if #known >= most and not redis.call('ZSCORE', root .. ':devices', id) then return {'full'} end
if redis.call('HGET', root .. ':device:' .. id, 'owner') ~= owner then end_device(id) end
local ends = string.format('%.0f', now + lasts * 1000000)
redis.call('HSET', root .. ':device:' .. id, 'owner', owner, 'renewed_at', now, 'expires_at', ends, unpack(fields))
redis.call('HSETNX', root .. ':device:' .. id, 'added_at', now)
redis.call('ZADD', root .. ':devices', ends, id)
return {'kept', now, ends}
