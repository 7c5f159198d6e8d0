-- return_rule_uses: count uses as not made, of actions that were decided by other means.
-- KEYS  1 root of the rules
-- ARGV  rule and claim of each action
-- Returns  the number of uses that were given back
-- Cost  O(a): a actions
-- Idempotent  by claim
-- include: _rules.lua
local returned = 0
for i = 1, #ARGV, 2 do
  local id, claim = ARGV[i], ARGV[i + 1]
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
