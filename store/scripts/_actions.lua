-- _actions: the open, unanswered actions of a conversation. Needs _log.
-- An action is {id, seq, at = µs as text, time = naive UTC text, since = when it came in, UTC text with Z,
-- group = its response's id as JSON ("" none), call = its tool call's id as JSON ("" none),
-- subject = the members by which an observation names it, as JSON without braces}.

-- In log order.
local function open_actions()
  local stored, actions = redis.call('HGETALL', root .. ':pending'), {}
  for i = 1, #stored, 2 do
    local action = cjson.decode(stored[i + 1])
    action.id = stored[i]
    actions[#actions + 1] = action
  end
  table.sort(actions, function(a, b) return a.seq < b.seq end)
  return actions
end

-- The stamp for events about these actions: never earlier than an action, also when the agent's clock is ahead.
local function not_before(actions, stamp)
  for _, action in ipairs(actions) do
    if tonumber(action.at) > tonumber(stamp.score) then stamp = {iso = action.time, score = action.at} end
  end
  return stamp
end

-- From now on no open action can be decided.
local function close_actions()
  redis.call('DEL', root .. ':pending')
end

-- Rejects every given action: status idle, then one UserRejectObservation each, in log order.
local function reject_actions(actions, reason, stamp)
  stamp = not_before(actions, stamp)
  set_status('idle', stamp)
  for _, action in ipairs(actions) do
    local id = next_id()
    append_event(id, 'UserRejectObservation:environment', stamp.score,
      '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"environment",' .. action.subject ..
      ',"rejection_reason":' .. reason .. ',"rejection_source":"user","kind":"UserRejectObservation"}', '')
  end
  close_actions()
  return stamp
end
