-- decide_destination: decide a destination that waits; the first decision wins, and is audited.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 name   3 port   4 µs since when it waits, as it was shown   5 "approve" | "reject"
--       6 once | conversation: as long as the sandbox is | always: by a rule   7 id of that rule   8 name of who decides
--       9 most rules   10 now, UTC text with Z   11 ms for which the audit of a day stays   12 who decides, canonical JSON
--       13 reason, canonical JSON
-- Returns  {"decided"} | {"made", rule as JSON} | {"known", id}: there is a rule of that name and port | {"full"}
--          | {"revoked"}: a rule of that id was | {"missing"}: nothing of that name waits
--          | {"changed"}: it was decided, or asked again, since | {"expired"}
-- Cost  O(1)
-- Idempotent  a repeat finds it decided; of `always` by the id of the rule
-- Log  none
-- Kept  proven
-- include: _clock.lua
-- include: _sha256.lua
-- include: _destinations.lua
local sandbox, name, port, since, decision, scope, rule_id, maker, most, time, kept, actor, reason = unpack(ARGV)
local earlier = scope == 'always' and redis.call('HGET', root .. ':destination_rules', rule_id)
if earlier then return {'made', earlier} end
local at, by = name .. ':' .. port, {time = time, kept = kept}
local item = looked_at(by, sandbox, at)
if not item then return {'missing'} end
if item.since ~= since then return {'changed'} end
if item.state == 'expired' then return {'expired'} end
if item.state ~= 'waiting' then return {'changed'} end
local entry = {name = name, port = port, sandbox = sandbox, digest = digest_of(sandbox, item), scope = scope,
  reason = reason}
if scope == 'always' then -- the rule alone decides, so that its revocation closes
  local reply = make_rule(by, actor, rule_id, name, port, decision, maker, most)
  if reply[1] == 'made' then
    forget(sandbox, at)
    entry.rule = rule_id
    audit(by, decision, actor, entry)
  end
  return reply
end
item.state, item.once = decision, scope == 'once' and '1' or ''
item.until_at = scope == 'once' and string.format('%.0f', now + HOLD) or ''
keep(sandbox, at, item)
audit(by, decision, actor, entry)
return {'decided'}
