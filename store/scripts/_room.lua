-- _room: the maximum number of running sandboxes.
-- include: _sandbox.lua
-- Returns the number of sandboxes that run or are about to, and a warm one of them.
local function occupancy()
  local number, warm = 0, nil
  for _, status in ipairs({'STARTING', 'RUNNING'}) do
    for _, id in ipairs(redis.call('ZRANGE', root .. ':created:' .. status, 0, -1)) do
      local wanted, version = unpack(redis.call('HMGET', root .. ':box:' .. id, 'wanted', 'warm'))
      if wanted == 'running' then
        number = number + 1
        if (version or '') ~= '' then warm = id end
      end
    end
  end
  return number, warm
end

-- Returns whether one more sandbox may run, or false and the number of those that run or are about to. Ends a warm
-- sandbox to make room; for bound ones see `agents/places.py`.
local function make_room(cap)
  local occupied = redis.call('ZCARD', root .. ':created:STARTING') + redis.call('ZCARD', root .. ':created:RUNNING')
  if occupied < cap then return true end -- includes those that are to be paused or deleted
  local number, warm = occupancy()
  if number < cap then return true end
  if not warm then return false, number end
  discard(warm)
  return true
end
