-- claim_rule_uses: count a use of a rule for each action that it is about to decide, all or none.
-- A revoked or expired rule grants nothing, not even a repeat. A used-up rule grants only repeats. A rule that rejects,
-- and may match one of the actions, stops rules that approve while it is in force.
-- KEYS  root of the rules
-- ARGV  doubts:text[] rules that must not be in force  uses:(id:text claim:text)* rule and claim of each action
-- Returns  int: 0, or the number of the first refused use, or -1 if one of those rules is in force; only 0 counts the
--          uses
-- Cost  O(a + r): a actions, r rules that must not be in force
-- Idempotent  by claim, for a day
-- include: _rules.lua
local function is_used_up(use)
  return use.max_uses ~= '' and tonumber(use.uses) >= tonumber(use.max_uses)
end

for _, id in ipairs(doubts) do
  local use = use_of(id)
  if use and not has_expired(use) and not is_used_up(use) then return -1 end
end
local changed, claims, place = {}, {}, 0
for id, claim in uses() do
  place = place + 1
  local use = changed[id] or use_of(id)
  if not use or has_expired(use) then return place end
  if redis.call('GET', root .. ':use:' .. claim) ~= id then
    if is_used_up(use) then return place end
    use.uses, use.last_used_at = string.format('%.0f', use.uses + 1), now
    changed[id], claims[claim] = use, id
  end
end
for claim, id in pairs(claims) do redis.call('SET', root .. ':use:' .. claim, id, 'PX', DAY) end
for id, use in pairs(changed) do set_use(id, use) end
return 0
