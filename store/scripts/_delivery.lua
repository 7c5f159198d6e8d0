-- _delivery: the lease of a sandbox's agent, and the address of that agent. Included, after _clock.lua, by the scripts that
-- hand out deliveries. An entry of the due index is "DELIVERY CONVERSATION SANDBOX".
local root = KEYS[1]

local function sandbox_of(entry) return string.match(entry, '(%S+)$') end

-- Takes the lease of an agent for so many ms, or renews it for its holder: no other claim finds the entry due meanwhile.
-- Returns whether the lease is the token's, and its end in µs.
local function take(entry, token, lease)
  local key, lease_end = root .. ':agent:' .. sandbox_of(entry), string.format('%.0f', now + lease * 1000)
  redis.call('ZADD', root .. ':deliveries', lease_end, entry)
  local taken = redis.call('SET', key, token, 'NX', 'PX', lease) or redis.call('GET', key) == token
  if taken then redis.call('PEXPIRE', key, lease) end
  return taken and 1 or 0, lease_end
end

-- The status of a sandbox, MISSING where it is gone or its host's heartbeat is older than host_span µs; its agent's URL and
-- session key, and for how many µs it has had that status. The call counts as a use: noted at most once a second.
local function agent_of(sandbox, host_span)
  local status, host, url, session_key, changed, active = unpack(redis.call('HMGET', root .. ':box:' .. sandbox,
    'status', 'host', 'agent_url', 'session_api_key', 'changed_at', 'active_at'))
  if not status then return {'MISSING', '', '', '0'} end
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if status == 'RUNNING' and not (beat and tonumber(beat) > now - host_span) then status = 'MISSING' end
  if math.abs(now - active) >= 1000000 then redis.call('HSET', root .. ':box:' .. sandbox, 'active_at', now) end
  return {status, url or '', session_key or '', string.format('%.0f', now - (changed or now))}
end
