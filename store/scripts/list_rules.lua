-- list_rules: approval rules with their uses, and the version of all rules.
-- KEYS  1 root of the rules
-- ARGV  ids; none: all rules
-- Returns  {version (empty: there was never a rule), {rule as JSON, its use as JSON (see _rules.lua), …}}
-- Cost  O(r): r rules, or ids
-- Idempotent  reads only
-- include: _rules.lua
local found = {}
for _, id in ipairs(#ARGV > 0 and ARGV or redis.call('HKEYS', root .. ':all')) do
  local rule = redis.call('HGET', root .. ':all', id)
  if rule then
    found[#found + 1] = rule
    found[#found + 1] = redis.call('HGET', root .. ':uses', id)
  end
end
return {redis.call('GET', root .. ':version') or '', found}
