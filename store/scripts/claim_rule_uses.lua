-- claim_rule_uses: count a use of a rule for each action that it is about to decide: all of them, or none.
-- A revoked or expired rule grants nothing, also no repeat; one that has all its uses grants repeats alone.
-- A rule that rejects, and may match one of the actions, stops rules that approve while it is in force.
-- KEYS  1 root of the rules
-- ARGV  1 number of rules that must not be in force   their ids   rule and claim of each action
-- Returns  0 | the number of the first pair that is refused | -1: one of those rules is in force. Unless 0, nothing is
--          counted
-- Cost  O(a + r): a actions, r rules that must not be in force
-- Idempotent  by claim, for a day
-- include: _rules.lua
local function is_used_up(use)
  return use.max_uses ~= '' and tonumber(use.uses) >= tonumber(use.max_uses)
end

local first = 2 + tonumber(ARGV[1])
for i = 2, first - 1 do
  local use = use_of(ARGV[i])
  if use and not has_expired(use) and not is_used_up(use) then return -1 end
end
local uses, claims, number = {}, {}, 0
for i = first, #ARGV, 2 do
  number = number + 1
  local id, claim = ARGV[i], ARGV[i + 1]
  local use = uses[id] or use_of(id)
  if not use or has_expired(use) then return number end
  if redis.call('GET', root .. ':use:' .. claim) ~= id then
    if is_used_up(use) then return number end
    use.uses, use.last_used_at = string.format('%.0f', use.uses + 1), now
    uses[id], claims[claim] = use, id
  end
end
for claim, id in pairs(claims) do redis.call('SET', root .. ':use:' .. claim, id, 'PX', DAY) end
for id, use in pairs(uses) do set_use(id, use) end
return 0
