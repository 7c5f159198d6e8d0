-- _actions: the open actions of a conversation, and the decisions about them.
-- A record is {id, seq, at = µs as text, time = naive UTC text, since = when it was appended, UTC text with Z,
-- group = id of its response as JSON ("" none), call = id of its tool call as JSON ("" none),
-- subject = the members by which an observation names it, as JSON without braces, name = its id as canonical JSON,
-- digest, tool = name of the tool as JSON, risk, size = bytes of its event, expires = µs as text (nil: no deadline),
-- shown = description of the action as canonical JSON (nil: of an earlier release),
-- trace = W3C traceparent of the batch that opened it (nil: none),
-- ask = of an action that an asker awaits, see `_asked.lua` (nil: none),
-- votes = approvals so far if several people must approve it, see `_quorum.lua` (nil: none)},
-- and after a decision {decided = "approve" | "reject" | "edit", reason = as JSON, arguments = edited arguments as JSON,
-- released = true: the conversation has continued with it}. A rejected one is kept until the agent has received it.
-- include: _audit.lua

-- Returns the open actions in log order.
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

-- Returns the actions that wait for a decision, while the conversation waits.
local function undecided(actions)
  local waiting = {}
  for _, action in ipairs(actions) do
    if not action.decided then waiting[#waiting + 1] = action end
  end
  return waiting
end

-- Returns the actions that a message overrides: undecided, or decided without the conversation having continued.
local function unreleased(actions)
  local held = {}
  for _, action in ipairs(actions) do
    if not action.released then held[#held + 1] = action end
  end
  return held
end

-- Returns a stamp for events about these actions: never earlier than an action, even if the agent's clock is ahead.
local function not_before(actions, stamp)
  for _, action in ipairs(actions) do
    if tonumber(action.at) > tonumber(stamp.score) then stamp = {iso = action.time, score = action.at} end
  end
  return stamp
end

local function keep_action(action)
  local id = action.id
  action.id = nil
  redis.call('HSET', root .. ':pending', id, cjson.encode(action))
  action.id = id
end

-- Closes actions.
local function close_actions(actions)
  local ids = {}
  for i, action in ipairs(actions) do ids[i] = action.id end
  call_with_all('HDEL', root .. ':pending', ids)
end

-- Approves actions, with edited arguments if there are any. They stay open until they are observed.
local function release_actions(actions)
  for _, action in ipairs(actions) do
    action.released, action.reason = true, nil
    keep_action(action)
  end
end

-- Appends a UserRejectObservation for each action, in log order, and closes it.
local function reject_actions(actions, stamp)
  for _, action in ipairs(actions) do
    local id = next_id()
    append_event(id, 'UserRejectObservation:environment', stamp.score,
      '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"environment",' .. action.subject ..
      ',"rejection_reason":' .. action.reason .. ',"rejection_source":"user","kind":"UserRejectObservation"}', '')
  end
  close_actions(actions)
end

-- Decides all actions alike, and audits it. by: {actor, reason = as JSON, said = as canonical JSON, time}. Returns the
-- stamp of the events.
local function decide_alike(actions, verb, by, stamp)
  stamp = not_before(actions, stamp)
  write_audit(verb, actions, by.actor, by.said, by.time)
  change_approvals()
  for _, action in ipairs(actions) do
    action.decided, action.reason = verb, by.reason
    log.fields.decided_trace = action.trace or log.fields.decided_trace
  end
  if verb == 'approve' then
    set_status('running', stamp)
    release_actions(actions)
  else
    set_status('idle', stamp)
    reject_actions(actions, stamp)
  end
  return stamp
end
