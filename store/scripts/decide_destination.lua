-- decide_destination: decide a destination that waits; the first decision wins.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 name   3 port   4 µs since when it waits, as it was shown   5 "approve" | "reject"
--       6 once | conversation: as long as the sandbox is | always: by a rule   7 id of that rule   8 who decides
--       9 most rules
-- Returns  {"decided"} | {"made", rule as JSON} | {"known", id}: there is a rule of that name and port | {"full"}
--          | {"missing"}: nothing of that name waits | {"changed"}: it was decided, or asked again, since | {"expired"}
-- Cost  O(1)
-- Idempotent  a repeat finds it decided; of `always` by the id of the rule
-- Log  none
-- Kept  proven
-- include: _clock.lua
-- include: _destinations.lua
local sandbox, name, port, since, decision, scope, rule_id, by, most = unpack(ARGV)
local earlier = scope == 'always' and redis.call('HGET', root .. ':destination_rules', rule_id)
if earlier then return {'made', earlier} end
local at = name .. ':' .. port
local item = asked_of(sandbox, at)
if not item then return {'missing'} end
if item.since ~= since then return {'changed'} end
if item.state == 'expired' then
  keep(sandbox, at, item)
  return {'expired'}
end
if item.state ~= 'waiting' then return {'changed'} end
if scope == 'always' then -- the rule alone decides, so that its revocation closes
  local reply = make_rule(rule_id, name, port, decision, by, most)
  if reply[1] == 'made' then forget(sandbox, at) end
  return reply
end
item.state, item.once = decision, scope == 'once' and '1' or ''
item.until_at = scope == 'once' and string.format('%.0f', now + HOLD) or ''
keep(sandbox, at, item)
return {'decided'}
