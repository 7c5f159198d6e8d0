-- ask_destination: return whether a sandbox may connect to a name and port now; asks a person if nobody has decided.
-- Audits that a person was asked, and the first attempt of a day per name that a person, a rule or a limit refuses.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  name:text  port:digits  program:text "" unknown  most_open:int pending ones of a sandbox
--       most_known:int stored destinations of a sandbox  span:int µs after which a request expires; 0: never
--       time:text now, UTC with Z  kept:int ms for which a day's audit is kept  actor:json the sandbox, canonical
--       said:text program as canonical JSON; "" unknown  most_asked:int requests of a sandbox in a day
--       most_refused:int names of a sandbox whose refusals of a day are audited
-- Returns  "allowed"(rule_id:text): by that rule, or by a person ("") | "asked": by this call | "waiting" | "rejected"
--          | "forbidden": by a rule | "expired" | "full"(number:int): pending ones | "many"(number:int): stored ones
--          | "often"(number:int): requests of today | "ended": no such sandbox
-- Cost  O(l + k): l labels of the name; k stored destinations of the sandbox if this one is new
-- Idempotent  a repeat counts another attempt, and the first uses up an approval for one connection
-- Brings  bytes
-- include: _sha256.lua
-- include: _destinations.lua
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return 'ended' end
local at, key, by = name .. ':' .. port, root .. ':asked:' .. sandbox, {time = time, kept = kept}
local tally = ':tally:' .. sandbox .. ':' .. string.sub(time, 1, 10)

-- Audits a refusal: the first of a day per name, within the limit. why: ASCII without quotes.
local function refuse(reply, why, rule_id)
  if redis.call('HEXISTS', root .. tally, at) == 0 and redis.call('HLEN', root .. tally) <= most_refused then
    redis.call('HSET', root .. tally, at, '1')
    redis.call('EXPIRE', root .. tally, 86400)
    audit(by, 'refused', actor, {name = name, port = port, sandbox = sandbox, program = said ~= '' and said or nil,
      reason = '"' .. why .. '"', rule = rule_id})
  end
  return reply
end

local item, rule = current_request(by, sandbox, at), ruled(name, port)
if rule then
  local id = string.match(rule, ' (.+)$')
  redis.call('HINCRBY', root .. ':destination_uses', id, 1)
  if item and item.state == 'waiting' then decide_by_rule(by, sandbox, at, item, rule) else forget(sandbox, at) end
  if string.sub(rule, 1, 6) == 'reject' then return refuse('forbidden', 'A rule rejects it', id) end
  note_reached(sandbox, at)
  return {'allowed', id}
end

if item then
  if item.state == 'approve' then
    if item.once == '1' then forget(sandbox, at) end
    note_reached(sandbox, at)
    return {'allowed', ''}
  end
  item.tries, item.tried_at = string.format('%.0f', item.tries + 1), now
  keep(sandbox, at, item)
  if item.state == 'reject' then return refuse('rejected', 'A person rejected it') end
  if item.state == 'expired' then return refuse('expired', 'Nobody decided it in time') end
  return 'waiting'
end

forget(sandbox, at)
local known, open = 0, 0
for _, other in ipairs(redis.call('HKEYS', key)) do
  local found = current_request(by, sandbox, other)
  if not found then forget(sandbox, other)
  elseif found.port ~= '0' then
    known = known + 1
    if found.state == 'waiting' then open = open + 1 end
  end
end
if open >= most_open then return refuse({'full', open}, 'Too many destinations of the sandbox wait') end
if known >= most_known then return refuse({'many', known}, 'The sandbox has asked for too many') end
local today = tonumber(redis.call('HGET', root .. tally, 'asked') or 0)
if today >= most_asked then return refuse({'often', today}, 'The sandbox has asked too often today') end
redis.call('HINCRBY', root .. tally, 'asked', 1)
redis.call('EXPIRE', root .. tally, 86400)
item = {name = name, port = port, program = program, tries = '1', state = 'waiting', since = now,
  until_at = span == 0 and '' or string.format('%.0f', now + span), tried_at = now, once = ''}
keep(sandbox, at, item)
redis.call('HINCRBY', root .. ':destinations', 'asked', 1)
audit(by, 'asked', actor, {name = name, port = port, sandbox = sandbox, program = said ~= '' and said or nil,
  digest = digest_of(sandbox, item), item = item})
return 'asked'
