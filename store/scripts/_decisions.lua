-- _decisions: the decisions of one call.
-- include: _actions.lua
-- include: _asked.lua
local EXPIRY = '{"address":"","kind":"expiry","name":""}'
local EXPIRED = '"No decision came before the deadline."'
local GONE = '"Its asker has gone."'
local LEASE = '{"address":"","kind":"lease","name":""}'
local chosen = {} -- {action, verb, by}

-- Returns who decides at a deadline.
local function expired(time) return {actor = EXPIRY, reason = EXPIRED, said = EXPIRED, time = time} end

-- Returns the actions whose deadline has passed, and the others. together: all are due if one is.
local function split_due(actions, together)
  local due, fresh = {}, {}
  for _, action in ipairs(actions) do
    local is_due = action.expires and tonumber(action.expires) <= tonumber(now)
    table.insert(is_due and due or fresh, action)
  end
  if together and #due > 0 then return actions, {} end
  return due, fresh
end

-- Returns the actions whose asker has gone, those that only their terminal can answer, and the others.
local function split_left(actions)
  local left, handed, rest = {}, {}, {}
  for _, action in ipairs(actions) do
    local ask = action.ask
    if ask and not ask.handed and has_ended(ask) then
      hand_to_terminal(ask)
      keep_action(action)
    end
    if ask and tonumber(ask.lapses) <= tonumber(now) then left[#left + 1] = action
    elseif ask and ask.handed then handed[#handed + 1] = action
    else rest[#rest + 1] = action end
  end
  return left, handed, rest
end

-- Returns who withdraws actions whose asker has gone.
local function withdrawal(time) return {actor = LEASE, reason = GONE, said = GONE, time = time} end

local function choose(actions, verb, by)
  for _, action in ipairs(actions) do
    action.decided, action.reason, action.arguments, action.edited, action.edited_shown = verb, by.reason, nil, nil, nil
    chosen[#chosen + 1] = {action = action, verb = verb, by = by}
  end
end

-- Returns the chosen actions that are traced: {verb, since, tool, call, trace} each, as in their records.
local function traced()
  local told = {}
  for _, one in ipairs(chosen) do
    local action = one.action
    if action.trace then
      told[#told + 1] = {verb = one.verb, since = action.since, tool = action.tool, call = action.call, trace = action.trace}
    end
  end
  return told
end

-- Audits the chosen decisions: an entry for all alike decisions of an actor with one reason, and an entry for each edit
-- and each decision of several people. Stores the trace of the last decision for the agent's next batch.
local function audit_chosen()
  local groups, by_words = {}, {}
  for _, one in ipairs(chosen) do
    local words = table.concat({one.verb, one.by.actor, one.by.said,
      (one.action.edited or one.action.agreed) and one.action.id or ''}, '\0')
    if not by_words[words] then
      by_words[words] = {verb = one.verb, by = one.by, edited = one.action.edited,
        edited_shown = one.action.edited_shown, agreed = one.action.agreed, actions = {}}
      groups[#groups + 1] = by_words[words]
    end
    table.insert(by_words[words].actions, one.action)
  end
  for _, group in ipairs(groups) do
    write_audit(group.verb == 'withdraw' and 'withdrawn' or group.verb, group.actions, group.by.actor, group.by.said, group.by.time, group.edited,
      group.edited_shown, group.agreed)
  end
  local told = traced()
  if #told > 0 then redis.call('HSET', root, 'decided_trace', told[#told].trace) end
  change_approvals()
end

-- Returns the decided actions with which the conversation has not continued, by decision; and whether all are decided.
local function decisions(open)
  local rejected, approved, is_whole = {}, {}, #undecided(open) == 0
  for _, action in ipairs(unreleased(open)) do
    if action.decided == 'reject' then rejected[#rejected + 1] = action
    elseif action.decided and action.decided ~= 'withdraw' then approved[#approved + 1] = action end
  end
  return rejected, approved, is_whole
end

local function append_edited_event(stamp)
  for _, one in ipairs(chosen) do
    if one.verb == 'edit' then
      state_event('edited_action',
        '{"action_id":' .. one.action.name .. ',"arguments":' .. one.action.arguments .. '}', stamp)
    end
  end
end

-- Ends withdrawn actions with an AgentErrorEvent each.
local function withdraw_actions(open, stamp)
  local withdrawn = {}
  for _, action in ipairs(open) do
    if action.decided == 'withdraw' then
      local id = next_id()
      append_event(id, 'AgentErrorEvent:agent', stamp.score,
        '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"agent",' ..
        string.gsub(action.subject, ', "action_id": .*$', '') .. ',"error":' .. action.reason .. ',"kind":"AgentErrorEvent"}', '')
      withdrawn[#withdrawn + 1] = action
    end
  end
  close_actions(withdrawn)
end

-- Continues a detached conversation when all are decided.
local function go_on(open, stamp)
  withdraw_actions(open, stamp)
  local rejected, approved, is_whole = decisions(open)
  if is_whole then set_status(#approved > 0 and 'running' or 'idle', stamp) end
  reject_actions(rejected, stamp)
  append_edited_event(stamp)
  if is_whole then release_actions(approved) else
    for _, action in ipairs(approved) do keep_action(action) end
  end
end
