-- _delivery: the lease of a sandbox's agent, for the scripts of deliveries.
-- `root` is that of the sandboxes. An entry of the due index is "DELIVERY CONVERSATION SANDBOX".
-- include: _clock.lua
local function sandbox_of(entry) return string.match(entry, '(%S+)$') or '' end

-- Returns whether an agent's lease has a holder. lease: length in ms. Redis expires keys by the time of day: a longer
-- remaining time means that the clock has stepped back since.
local function is_taken(key, lease)
  local left = redis.call('PTTL', key)
  if left <= tonumber(lease) then return left >= 0 end
  redis.call('DEL', key)
  return false
end

-- Takes the lease of an agent for some ms, or renews it for its holder. The entry is not due meanwhile. Returns whether
-- the token has the lease, and its end in µs.
local function take(entry, token, lease)
  local key, lease_end = root .. ':agent:' .. sandbox_of(entry), string.format('%.0f', now + lease * 1000)
  redis.call('ZADD', root .. ':deliveries', lease_end, entry)
  local taken = not is_taken(key, lease) or redis.call('GET', key) == token
  if taken then redis.call('SET', key, token, 'PX', lease) end
  return taken and 1 or 0, lease_end
end
