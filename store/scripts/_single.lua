-- _single: decisions of single actions, and what a sandbox's agent is to receive of them. Needs _log, _echoes, _decisions.

-- What is wrong with the given decisions: {action_id, problem} each.
local function problems_of(given, fresh, due, together, edits)
  local waiting, is_due, is_given, problems = {}, {}, {}, {}
  for _, action in ipairs(fresh) do waiting[action.id] = action end
  for _, action in ipairs(due) do is_due[action.id] = true end
  local function note(id, problem) problems[#problems + 1] = {action_id = id, problem = problem} end
  for _, one in ipairs(given) do
    local action = waiting[one.id]
    is_given[one.id] = true
    if is_due[one.id] then note(one.id, 'expired')
    elseif not action then note(one.id, 'not_pending')
    elseif one.digest ~= '' and one.digest ~= action.digest then note(one.id, 'changed')
    elseif one.since ~= '' and one.since ~= action.since then note(one.id, 'changed')
    elseif one.verb == 'edit' and (together or not edits) then note(one.id, 'edit_not_understood')
    elseif together and one.verb ~= given[1].verb then note(one.id, 'decided_alike')
    end
  end
  for _, action in ipairs(together and fresh or {}) do
    if not is_given[action.id] then note(action.id, 'decided_together') end
  end
  return problems
end

local function choose_each(given, fresh, by)
  local waiting = {}
  for _, action in ipairs(fresh) do waiting[action.id] = action end
  for _, one in ipairs(given) do
    local action = waiting[one.id]
    choose({action}, one.verb, {actor = by.actor, reason = one.reason, said = one.said, time = by.time})
    if one.verb == 'edit' then action.arguments, action.edited = one.arguments, one.edited end
  end
end

-- In a sandbox: the agent is to receive the decisions when all are taken. One that takes one decision for all by now,
-- though some were taken singly before, gets an approval only where every action has been approved as it was shown.
local function hand_over(open, stamp, together, delivery_id)
  for _, one in ipairs(chosen) do
    if one.verb == 'reject' then expect('reject ' .. one.action.id, delivery_id, now) end
  end
  say_edited(stamp)
  local rejected, approved, is_whole = decisions(open)
  if not is_whole then
    for _, one in ipairs(chosen) do keep_action(one.action) end
    return
  end
  local approves = #approved > 0
  for _, action in ipairs(together and unreleased(open) or {}) do
    approves = approves and action.decided == 'approve'
  end
  local ids, each, reason = {}, {}, rejected[1] and rejected[1].reason or chosen[1] and chosen[1].by.reason or '""'
  for _, action in ipairs(unreleased(open)) do
    ids[#ids + 1] = action.id
    each[#each + 1] = '{"action_id":' .. action.name .. ',"decision":"' .. action.decided .. '"' ..
      (action.decided == 'reject' and ',"reason":' .. action.reason or '') ..
      (action.arguments and ',"arguments":' .. action.arguments or '') .. '}'
  end
  local told = traced()
  redis.call('HSET', root, 'delivery_id', delivery_id, 'delivery_verb', approves and 'accept' or 'reject',
    'delivery_trace', told[1] and told[#told].trace or '',
    'delivery_reason', reason, 'delivery_actions', cjson.encode(ids), 'delivery_at', now,
    'delivery_decisions', together and '' or '[' .. table.concat(each, ',') .. ']')
  close_actions(open)
end
