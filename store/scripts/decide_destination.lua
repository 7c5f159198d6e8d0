-- decide_destination: decide a pending destination or budget.
-- The first decision wins, and is audited. An approval of a budget adds its amount once more, and a rejection holds
-- until it is full again.
-- KEYS  root of the sandboxes
-- ARGV  asker:text the sandbox id, or for a budget `day.DAY`  at:text "NAME:PORT"
--       since:micros start of its wait, as it was shown  decision:text "approve" or "reject"
--       scope:text once, conversation (for the life of the sandbox) or always (by a rule, not for a budget)
--       rule_id:text of that rule  maker:text name of the decider  most:int rules  time:text now, UTC with Z
--       kept:int ms for which a day's audit is kept  actor:json the decider, canonical  reason:json canonical
-- Returns  "decided" | "made"(rule:json) | "known"(id:text): of a rule with that name and port | "full"
--          | "revoked": the rule with that id | "missing": none of that name is pending
--          | "changed": it was decided, or requested again | "expired"
-- Cost  O(1)
-- Idempotent  a repeat finds it decided; for `always` by the id of the rule
-- include: _spending.lua
-- include: _sha256.lua
-- include: _destinations.lua
local earlier = scope == 'always' and redis.call('HGET', root .. ':destination_rules', rule_id)
if earlier then return {'made', earlier} end
local by = {time = time, kept = kept}
local item = current_request(by, asker, at)
if not item then return 'missing' end
if item.since ~= since then return 'changed' end
if item.state == 'expired' then return 'expired' end
if item.state ~= 'waiting' then return 'changed' end
local entry = {name = item.name, port = item.port, key = item.key, sandbox = item.sandbox or asker,
  digest = digest_of(asker, item), scope = scope, reason = reason}
if scope == 'always' then -- only the rule decides, so that its revocation takes effect
  local reply = make_rule(by, actor, rule_id, item.name, item.port, decision, maker, most)
  if reply[1] == 'made' then
    forget(asker, at)
    if decision == 'approve' then leave_go_ahead(item, asker, at, actor, '') end
    entry.rule = rule_id
    audit(by, decision, actor, entry)
  end
  return reply
end
if item.port == '0' and decision == 'approve' then
  forget(asker, at)
  local spent = item.day == '' and ':spent:' .. asker or ':spent_on:' .. today
  local suffix = item.name == 'MODEL_BUDGET_KEY' and ' ' .. item.key or ''
  for _, unit in ipairs({'nanos', 'tokens'}) do
    if item[unit] ~= '' then redis.call('HINCRBY', root .. spent, 'allowed_' .. unit .. suffix, item[unit]) end
  end
  leave_go_ahead(item, asker, at, actor, item.ends)
  audit(by, decision, actor, entry)
  return 'decided'
end
item.state, item.once = decision, scope == 'once' and '1' or ''
item.until_at = item.ends or scope == 'once' and string.format('%.0f', now + HOLD) or ''
keep(asker, at, item)
if decision == 'approve' then leave_go_ahead(item, asker, at, actor, item.until_at) end
audit(by, decision, actor, entry)
return 'decided'
