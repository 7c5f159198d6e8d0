-- _room: the cap of sandboxes that run.
-- include: _sandbox.lua
-- The number of sandboxes that run or are about to, a warm one of them, and the bound one that has been idle for longest.
local function occupancy()
  local number, warm, idlest, since = 0, nil, nil, nil
  for _, status in ipairs({'STARTING', 'RUNNING'}) do
    for _, id in ipairs(redis.call('ZRANGE', root .. ':created:' .. status, 0, -1)) do
      local wanted, at, version = unpack(redis.call('HMGET', root .. ':box:' .. id, 'wanted', 'active_at', 'warm'))
      if wanted == 'running' then
        number = number + 1
        local active = tonumber(at)
        if (version or '') ~= '' then
          warm = id
        elseif status == 'RUNNING' and (not since or active < since) then
          idlest, since = id, active
        end
      end
    end
  end
  return number, warm, idlest
end

-- Whether one more sandbox may run. A warm one ends to make room; where there is none and policy is "pause", the sandbox is
-- paused that has been idle for longest. Returns true, or false and the number of those that run or are about to.
local function make_room(cap, policy)
  local occupied = redis.call('ZCARD', root .. ':created:STARTING') + redis.call('ZCARD', root .. ':created:RUNNING')
  if occupied < cap then return true end -- what is to be paused or deleted is among them, and is left out below
  local number, warm, idlest = occupancy()
  if number < cap then return true end
  if warm then
    discard(warm)
    return true
  end
  if policy ~= 'pause' or not idlest then return false, number end
  redis.call('HSET', root .. ':box:' .. idlest, 'wanted', 'paused')
  signal(idlest)
  return true
end
