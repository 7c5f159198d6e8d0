-- _room: the cap of sandboxes that run. Included after _sandbox.lua.
-- Whether one more sandbox may run. policy "pause": makes room by pausing the sandbox that has been idle for longest.
-- Returns true, or false and the number of those that run or are about to.
local function make_room(cap, policy)
  local occupied = redis.call('ZCARD', root .. ':created:STARTING') + redis.call('ZCARD', root .. ':created:RUNNING')
  if occupied < cap then return true end -- what is to be paused or deleted is among them, and is left out below
  local number, idlest, since = 0, nil, nil
  for _, status in ipairs({'STARTING', 'RUNNING'}) do
    for _, id in ipairs(redis.call('ZRANGE', root .. ':created:' .. status, 0, -1)) do
      if field(id, 'wanted') == 'running' then
        number = number + 1
        local active = tonumber(field(id, 'active_at'))
        if status == 'RUNNING' and (not since or active < since) then idlest, since = id, active end
      end
    end
  end
  if number < cap then return true end
  if policy ~= 'pause' or not idlest then return false, number end
  redis.call('HSET', root .. ':box:' .. idlest, 'wanted', 'paused')
  signal(idlest)
  return true
end
