-- read_devices: return the devices that have not expired.
-- KEYS  root of the notifications
-- ARGV  ids:text* none: all
-- Returns  (id:text queued:int oldest:text? device:hash state:hash)*: id of its oldest message
-- Cost  O(d): d devices
-- Idempotent  reads only
-- include: _clock.lua
local found = {}
if #ids == 0 then ids = redis.call('ZRANGE', root .. ':devices', 0, -1) end
for _, id in ipairs(ids) do
  local ends = redis.call('ZSCORE', root .. ':devices', id)
  if ends and tonumber(ends) > tonumber(now) then
    local oldest = redis.call('XRANGE', root .. ':queue:' .. id, '-', '+', 'COUNT', 1)[1]
    found[#found + 1] = id
    found[#found + 1] = redis.call('XLEN', root .. ':queue:' .. id)
    found[#found + 1] = oldest ~= nil and oldest[1]
    found[#found + 1] = redis.call('HGETALL', root .. ':device:' .. id)
    found[#found + 1] = redis.call('HGETALL', root .. ':state:' .. id)
  end
end
return found
