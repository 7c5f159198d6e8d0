-- end_devices: end devices, and what waits for them.
-- KEYS  root of the notifications
-- ARGV  ids:text*
-- Returns  int: devices that there were
-- Cost  O(i): i ids
-- Idempotent  a repeat finds none
-- Kept  not proven: a device that rings once more is ended again
-- include: _devices.lua
local number = 0
for _, id in ipairs(ids) do
  if redis.call('ZSCORE', root .. ':devices', id) then number = number + 1 end
  end_device(id)
end
return number
