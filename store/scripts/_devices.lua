-- _devices: devices for notifications, each with a queue and a state like a target.
-- See `store/devices.py`.

-- Deletes a device and its queue.
local function end_device(id)
  redis.call('ZREM', root .. ':devices', id)
  redis.call('SREM', root .. ':ringing', id)
  return redis.call('DEL', root .. ':device:' .. id, root .. ':queue:' .. id, root .. ':state:' .. id)
end
