-- _sandbox: the state machine of sandboxes, and what keeps their listings true. Included by every script that writes
-- sandboxes. `root` is KEYS[1]. A sandbox has a status, which is observed, and what is wanted of it.
local root = KEYS[1]

-- What a client asks: status → {what is wanted from now on, status}. A status that is not named refuses.
local ASKED = {
  pause = {RUNNING = {'paused', 'RUNNING'}, PAUSED = {'paused', 'PAUSED'}},
  resume = {PAUSED = {'running', 'STARTING'}, RUNNING = {'running', 'RUNNING'}, STARTING = {'running', 'STARTING'}},
  delete = {STARTING = {'deleted', 'STARTING'}, RUNNING = {'deleted', 'RUNNING'}, PAUSED = {'deleted', 'PAUSED'},
    ERROR = {'deleted', 'ERROR'}, MISSING = {'deleted', 'MISSING'}},
}

-- What a supervisor sees: status → the statuses that may follow it. A host that is lost makes the first three MISSING.
-- PAUSED, where a resume is wanted by now, is STARTING.
local SEEN = {
  STARTING = {RUNNING = true, ERROR = true, MISSING = true},
  RUNNING = {PAUSED = true, STARTING = true, ERROR = true, MISSING = true},
  PAUSED = {STARTING = true, ERROR = true, MISSING = true},
  MISSING = {RUNNING = true, PAUSED = true, STARTING = true, ERROR = true},
  ERROR = {},
}

local function field(id, name) return redis.call('HGET', root .. ':box:' .. id, name) end

-- Sets a status and moves the sandbox in the listings. now: µs
local function set_status(id, status, now)
  local box = redis.call('HMGET', root .. ':box:' .. id, 'status', 'created_at')
  if box[1] == status then return end
  if box[1] then redis.call('ZREM', root .. ':created:' .. box[1], id) end
  redis.call('ZADD', root .. ':created:' .. status, box[2], id)
  redis.call('HSET', root .. ':box:' .. id, 'status', status, 'changed_at', now)
end

local function remove(id)
  local box = redis.call('HMGET', root .. ':box:' .. id, 'status', 'spec_id', 'key_hash', 'host')
  if not box[1] then return end
  redis.call('ZREM', root .. ':created', id)
  redis.call('ZREM', root .. ':created:' .. box[1], id)
  redis.call('ZREM', root .. ':unclaimed', id)
  redis.call('HDEL', root .. ':keys', box[3])
  redis.call('SREM', root .. ':host:' .. box[4], id)
  redis.call('UNLINK', root .. ':box:' .. id, root .. ':gone:' .. id)
end

-- Tells the supervisors that something is wanted.
local function signal(id) redis.call('PUBLISH', root .. ':signal', id) end

-- Whether one more may run. policy "pause": makes room by pausing the one that has been idle for longest.
-- Returns true, or false and the number of those that run or are about to.
local function make_room(cap, policy)
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
