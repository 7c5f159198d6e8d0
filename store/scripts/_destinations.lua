-- _destinations: the destinations that a sandbox has requested.
-- A script that writes the audit includes _sha256.lua before. A requested destination is {name, port, program, tries,
-- state, since, until_at, tried_at, once}, all as text, because cjson rounds numbers to 14 digits. state: waiting,
-- approve, reject, or expired. until_at: µs ("" for the life of the sandbox). once: "1" if the approval is for one
-- connection. A requested budget is one too: its name is its setting, its port is 0, and it also has {sandbox: of the
-- first refused call, key (only of MODEL_BUDGET_KEY, else ""), day (only of a daily budget, else ""), ends: µs at which
-- it is full again ("" never), nanos, tokens: amounts that an approval adds ("" nothing)}. The budget of a conversation
-- is requested by its sandbox, others by "day.DAY".
-- include: _clock.lua
local HOLD = 600000000 -- µs for which a decision for one connection, and an expiry, are valid for further attempts
local MOST_UNNOTED = 100000
local EXPIRY = '{"address":"","kind":"expiry","name":""}'

-- Returns the SHA-256 of what a person is shown of a destination, as `AskedDestination.digest`.
local function digest_of(sandbox, item)
  return sha256('{"name":"' .. item.name .. '","port":' .. item.port .. ',"sandbox_id":"' .. (item.sandbox or sandbox) ..
    '","since":"' .. item.since .. '"}')
end

-- Writes an audit entry in canonical JSON (RFC 8785), with the hash of the day's previous entry, and queues it for the
-- index. by: {time = UTC text with Z, kept = ms for which a day's chain is kept}. actor: canonical JSON. of: {name,
-- port}, and where they apply: key (of a budget), sandbox, digest, program, reason (both canonical JSON), rule, scope;
-- item: the request. A join has sandbox, conversation and reason, without name and port; an approval rule has rule and
-- reason. The time is raised to the previous entry's, because the writers' clocks may differ.
local function audit(by, decision, actor, of)
  local last = redis.call('HGET', root .. ':destinations', 'audited') or ''
  local time = by.time < last and last or by.time
  local day = string.sub(time, 1, 10)
  local key = root .. ':audit:' .. day
  local before, seq = redis.call('LINDEX', key, -1), redis.call('LLEN', key) + 1
  local places = of.conversation and {of.conversation} or of.sandbox and redis.call('ZRANGE', root .. ':places:' .. of.sandbox, 0, 1) or {}
  local budget = of.port == '0' and ',"budget":{' .. ((of.key or '') ~= '' and '"key_id":"' .. of.key .. '",' or '') ..
    '"sandbox_id":"' .. of.sandbox .. '","setting":"' .. of.name .. '"}' or ''
  local destination = of.port and of.port ~= '0' and ',"destination":{"name":"' .. of.name .. '","port":' .. of.port ..
    (of.program and ',"program":' .. of.program or '') ..
    (of.sandbox and ',"sandbox_id":"' .. of.sandbox .. '"' or '') .. '}' or ''
  local head = '{"action_ids":[],"actor":' .. actor .. budget .. ',"chain":"destinations-' .. day ..
    '","conversation_id":' .. (#places == 1 and '"' .. places[1] .. '"' or 'null') .. ',"decision":"' .. decision .. '"' ..
    destination .. ',"digests":[' .. (of.digest and '"' .. of.digest .. '"' or '') .. ']'
  local tail = '"previous":"' .. (before and string.match(before, '"hash":"(%x+)"') or '') .. '","reason":' ..
    (of.reason or '""') .. (of.rule and ',"rule_id":"' .. of.rule .. '"' or '') ..
    (of.port == nil and of.sandbox and ',"sandbox_id":"' .. of.sandbox .. '"' or '') ..
    (of.scope and ',"scope":"' .. of.scope .. '"' or '') .. ',"seq":' .. string.format('%d', seq) ..
    ',"time":"' .. time .. '"}'
  local entry = head .. ',"hash":"' .. sha256(head .. ',' .. tail) .. '",' .. tail
  redis.call('RPUSH', key, entry)
  redis.call('PEXPIRE', key, by.kept)
  redis.call('HSET', root .. ':destinations', 'audited', time)
  redis.call('XADD', root .. ':unnoted', 'MAXLEN', '~', MOST_UNNOTED, '*', 'entry', entry, 'item',
    of.item and cjson.encode(of.item) or '')
end

-- Returns a sandbox's request for NAME:PORT; nil without a request, or after its end. A wait past its deadline is
-- expired. Also returns a request that has expired since the last call.
local function request_of(sandbox, at)
  local stored = redis.call('HGET', root .. ':asked:' .. sandbox, at)
  local item = stored and cjson.decode(stored) or nil
  if item == nil or item.until_at == '' or tonumber(item.until_at) > tonumber(now) then return item end
  if item.state ~= 'waiting' then return nil end
  local ends = tonumber(item.until_at) + HOLD
  item.state, item.until_at = 'expired', string.format('%.0f', ends)
  if ends <= tonumber(now) then return nil, item end
  return item, item
end

local function end_wait(sandbox, at)
  redis.call('ZREM', root .. ':asking', sandbox .. ' ' .. at)
  redis.call('ZREM', root .. ':asking_due', sandbox .. ' ' .. at)
end

local function keep(sandbox, at, item)
  redis.call('HSET', root .. ':asked:' .. sandbox, at, cjson.encode(item))
  if item.state ~= 'waiting' then return end_wait(sandbox, at) end
  redis.call('ZADD', root .. ':asking', item.since, sandbox .. ' ' .. at)
  if item.until_at ~= '' then redis.call('ZADD', root .. ':asking_due', item.until_at, sandbox .. ' ' .. at) end
end

local function forget(sandbox, at)
  redis.call('HDEL', root .. ':asked:' .. sandbox, at)
  end_wait(sandbox, at)
end

-- Returns the request like `request_of`, and audits an expiry since the last call.
local function current_request(by, sandbox, at)
  local item, expired = request_of(sandbox, at)
  if expired then
    audit(by, 'reject', EXPIRY, {name = expired.name, port = expired.port, key = expired.key,
      sandbox = expired.sandbox or sandbox, digest = digest_of(sandbox, expired)})
    if item then keep(sandbox, at, item) else forget(sandbox, at) end
  end
  return item
end

-- Leaves a go-ahead for an approved request. A supervisor finds out whether to notify the agent (`store/go_aheads.py`).
-- actor: canonical JSON. ends: µs, "" never. A budget has one go-ahead per refused sandbox.
local function leave_go_ahead(item, sandbox, at, actor, ends)
  for of in string.gmatch(item.refused or item.sandbox or sandbox, '%S+') do
    local member = of .. ' ' .. at
    redis.call('HSET', root .. ':go_aheads', member, cjson.encode({id = item.since .. '.' .. now, sandbox = of,
      name = item.name, port = item.port, tried_at = item.tried_at, allowed_at = now, ends = ends, actor = actor}))
    redis.call('ZADD', root .. ':go_aheads_due', now, member)
  end
end

-- Records that a sandbox has reached an approved destination: its agent may have tried again by itself.
local function note_reached(sandbox, at)
  local stored = redis.call('HGET', root .. ':go_aheads', sandbox .. ' ' .. at)
  if not stored then return end
  local left = cjson.decode(stored)
  left.reached = '1'
  redis.call('HSET', root .. ':go_aheads', sandbox .. ' ' .. at, cjson.encode(left))
end

-- Decides a pending request by a rule ("approve ID" or "reject ID"), and ends its wait.
local function decide_by_rule(by, sandbox, at, item, rule)
  local decision, id = string.match(rule, '^(%S+) (.+)$')
  local actor = '{"address":"","kind":"rule","name":"' .. id .. '"}'
  forget(sandbox, at)
  if decision == 'approve' then leave_go_ahead(item, sandbox, at, actor, '') end
  audit(by, decision, actor, {name = item.name, port = item.port,
    sandbox = sandbox, digest = digest_of(sandbox, item), rule = id})
end

-- Returns the decision of the rules about a name and a port: "approve ID", "reject ID", or nil. A rejection wins. The
-- pattern of a rule is the name itself, or `*.` and a suffix of at least two labels.
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

-- Stores a rule, once per id. by: see `audit`; actor: canonical JSON. Returns {"made", rule as JSON} | {"known", id}:
-- of a rule with that pattern and port | {"revoked"}: the rule of that id | {"full"}.
local function make_rule(by, actor, id, name, port, decision, maker, most)
  local known = redis.call('HGET', root .. ':destination_rules', id)
  if known then return {'made', known} end
  if redis.call('EXISTS', root .. ':revoked:' .. id) == 1 then return {'revoked'} end
  local other = redis.call('HGET', root .. ':destination_named', name .. ':' .. port)
  if other then return {'known', string.match(other, ' (.+)$')} end
  if redis.call('HLEN', root .. ':destination_rules') >= most then return {'full'} end
  local made = cjson.encode({id = id, name = name, port = port, decision = decision, created_by = maker, created_at = now})
  redis.call('HSET', root .. ':destination_rules', id, made)
  redis.call('HSET', root .. ':destination_named', name .. ':' .. port, decision .. ' ' .. id)
  redis.call('HSET', root .. ':destinations', 'ruled', '1') -- compare pending requests with the rules
  audit(by, 'rule_made', actor, {name = name, port = port, rule = id, reason = '"' .. decision .. '"'})
  return {'made', made}
end
