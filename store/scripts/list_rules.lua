-- list_rules: return approval rules with their uses, and the version of all rules.
-- KEYS  root of the rules
-- ARGV  ids:text* none: all rules
-- Returns  (version:bytes rules:(rule:json use:json)[]): the version is empty if there was never a rule; for uses see
--          `_rules.lua`
-- Cost  O(r): r rules, or ids
-- Idempotent  reads only
-- include: _rules.lua
local found = {}
for _, id in ipairs(#ids > 0 and ids or redis.call('HKEYS', root .. ':all')) do
  local rule = redis.call('HGET', root .. ':all', id)
  if rule then
    found[#found + 1] = rule
    found[#found + 1] = redis.call('HGET', root .. ':uses', id)
  end
end
return {redis.call('GET', root .. ':version') or '', found}
