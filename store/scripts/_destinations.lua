-- _destinations: what a sandbox has asked to reach. Included after _clock.lua.
-- An asked destination is {name, port, program, tries, state, since, until_at, tried_at, once}, all of them text: cjson
-- rounds numbers to 14 digits. state: waiting, approve, reject, or expired. until_at: µs ("" as long as the sandbox is).
-- once: "1" where the approval lets one connection pass.
local root = KEYS[1]
local HOLD = 600000000 -- µs for which a decision that is taken once, and an expiry, are told to who tries again

-- What a sandbox has asked of NAME:PORT; nil where it has not, or where that has ended. A wait that is over has expired.
local function asked_of(sandbox, at)
  local stored = redis.call('HGET', root .. ':asked:' .. sandbox, at)
  local item = stored and cjson.decode(stored) or nil
  if item == nil or item.until_at == '' or tonumber(item.until_at) > tonumber(now) then return item end
  if item.state ~= 'waiting' then return nil end
  local ends = tonumber(item.until_at) + HOLD
  if ends <= tonumber(now) then return nil end
  item.state, item.until_at = 'expired', string.format('%.0f', ends)
  return item
end

local function keep(sandbox, at, item)
  redis.call('HSET', root .. ':asked:' .. sandbox, at, cjson.encode(item))
  if item.state == 'waiting' then redis.call('ZADD', root .. ':asking', item.since, sandbox .. ' ' .. at)
  else redis.call('ZREM', root .. ':asking', sandbox .. ' ' .. at) end
end

local function forget(sandbox, at)
  redis.call('HDEL', root .. ':asked:' .. sandbox, at)
  redis.call('ZREM', root .. ':asking', sandbox .. ' ' .. at)
end

-- The decision of the rules about a name and a port: "approve ID", "reject ID", or nil; one that rejects wins. A rule
-- names the name itself, or `*.` and a suffix of at least two labels.
local function ruled(name, port)
  local found
  local function look(pattern)
    local rule = redis.call('HGET', root .. ':destination_named', pattern .. ':' .. port)
    if rule and (found == nil or string.sub(rule, 1, 6) == 'reject') then found = found and
      string.sub(found, 1, 6) == 'reject' and found or rule end
  end
  look(name)
  local rest = string.match(name, '^[^.]*%.(.+)$')
  while rest and string.find(rest, '.', 1, true) do
    look('*.' .. rest)
    rest = string.match(rest, '^[^.]*%.(.+)$')
  end
  return found
end

-- Keeps a rule, once per id. Returns {"made", rule as JSON} | {"known", id}: there is one of that pattern and port
-- | {"full"}.
local function make_rule(id, name, port, decision, by, most)
  local known = redis.call('HGET', root .. ':destination_rules', id)
  if known then return {'made', known} end
  local other = redis.call('HGET', root .. ':destination_named', name .. ':' .. port)
  if other then return {'known', string.match(other, ' (.+)$')} end
  if redis.call('HLEN', root .. ':destination_rules') >= tonumber(most) then return {'full'} end
  local made = cjson.encode({id = id, name = name, port = port, decision = decision, created_by = by, created_at = now})
  redis.call('HSET', root .. ':destination_rules', id, made)
  redis.call('HSET', root .. ':destination_named', name .. ':' .. port, decision .. ' ' .. id)
  return {'made', made}
end
