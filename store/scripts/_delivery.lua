-- _delivery: the lease of a sandbox's agent. Included, after _clock.lua, by the scripts that hand out deliveries, where
-- `root` is that of the sandboxes. An entry of the due index is "DELIVERY CONVERSATION SANDBOX".

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
