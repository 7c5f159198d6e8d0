-- _devices: the devices that ring, each with a queue and a state as a target has them. See `store/devices.py`.

-- Ends a device, and what waits for it.
local function end_device(id)
  redis.call('ZREM', root .. ':devices', id)
  redis.call('SREM', root .. ':ringing', id)
  return redis.call('DEL', root .. ':device:' .. id, root .. ':queue:' .. id, root .. ':state:' .. id)
end
