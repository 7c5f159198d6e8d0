-- end_devices: delete devices and their queues.
-- KEYS  root of the notifications
-- ARGV  ids:text*
-- Returns  int: number of deleted devices
-- Cost  O(i): i ids
-- Idempotent  a repeat finds none
-- Kept  not proven: a device that comes back is deleted again
-- include: _devices.lua
local number = 0
for _, id in ipairs(ids) do
  if redis.call('ZSCORE', root .. ':devices', id) then number = number + 1 end
  end_device(id)
end
return number
