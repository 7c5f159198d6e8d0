-- return_rule_uses: return uses of rules, because their actions were decided by other means.
-- KEYS  root of the rules
-- ARGV  uses:(id:text claim:text)* rule and claim of each action
-- Returns  int: number of returned uses
-- Cost  O(a): a actions
-- Idempotent  by claim
-- include: _rules.lua
local returned = 0
for id, claim in uses() do
  if redis.call('GET', root .. ':use:' .. claim) == id then
    redis.call('DEL', root .. ':use:' .. claim)
    returned = returned + 1
    local use = use_of(id)
    if use then
      use.uses = string.format('%.0f', use.uses - 1)
      set_use(id, use)
    end
  end
end
return returned
