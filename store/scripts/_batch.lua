-- _batch: the open actions while a batch is appended: read once, changed in memory, written back once.
-- Needs _log, _audit, _actions.
local open -- nil until an event of the batch is about an action

local function enter(action)
  open.by_id[action.id] = action
  open.by_call[action.call] = open.by_call[action.call] or {}
  open.by_call[action.call][action.id] = true
  open.in_group[action.group] = (open.in_group[action.group] or 0) + 1
  open.count = open.count + 1
  if not action.decided then open.undecided = open.undecided + 1 end
end

local function read_open()
  if open then return end
  open = {by_id = {}, by_call = {}, in_group = {}, count = 0, undecided = 0, fresh = 0, closed = {}}
  for _, action in ipairs(open_actions()) do enter(action) end
end

local function open_action(action)
  read_open()
  action.fresh = true
  open.fresh = open.fresh + 1
  enter(action)
end

local function close_action(id)
  read_open()
  local action = open.by_id[id]
  if not action then return end
  open.by_id[id], open.by_call[action.call][id] = nil, nil
  open.in_group[action.group] = open.in_group[action.group] - 1
  open.count = open.count - 1
  if not action.decided then open.undecided = open.undecided - 1 end
  if action.fresh then open.fresh = open.fresh - 1 else open.closed[#open.closed + 1] = id end
end

local function close_call(call)
  read_open()
  for id in pairs(open.by_call[call] or {}) do close_action(id) end
end

-- Whether an action is still open, and waits: a harmless action waits only beside others of its response.
local function waits(action)
  local in_company = action.group ~= '' and (open.in_group[action.group] or 0) > 1
  return open.by_id[action.id] ~= nil and (not action.harmless or in_company)
end

-- Forgets the oldest open actions, those first that were decided: they stay in the log, and can no longer be decided.
local function forget_beyond(most)
  if not open or open.count <= most then return end
  local actions = {}
  for _, action in pairs(open.by_id) do actions[#actions + 1] = action end
  table.sort(actions, function(a, b)
    if (a.decided == nil) ~= (b.decided == nil) then return a.decided ~= nil end
    return a.seq < b.seq
  end)
  for i = 1, #actions - most do close_action(actions[i].id) end
end

-- The undecided actions expire so many seconds from now (0: never): those that begin to wait, or all where the
-- conversation begins to.
local function set_deadlines(seconds, begins)
  if seconds == 0 and not begins then return end
  read_open()
  local expires = seconds > 0 and string.format('%.0f', now + seconds * 1000000) or nil
  for _, action in pairs(open.by_id) do
    if not action.decided and (begins or not action.expires) and action.expires ~= expires then
      action.expires, action.changed = expires, true
    end
  end
end

-- The traceparent that a decision left in the conversation: it is for one batch.
local function take_trace(left)
  if left ~= '' then log.fields.decided_trace = '' end
  return left
end

local function write_open()
  if not open then return end
  local words = {}
  for id, action in pairs(open.by_id) do
    if action.fresh or action.changed then
      words[#words + 1], words[#words + 2] = id, cjson.encode({seq = action.seq, at = action.at, time = action.time,
        since = action.since, group = action.group, call = action.call, subject = action.subject, name = action.name,
        digest = action.digest, tool = action.tool, risk = action.risk, expires = action.expires,
        size = action.size, trace = action.trace})
    end
  end
  call_with_all('HDEL', root .. ':pending', open.closed)
  call_with_all('HSET', root .. ':pending', words)
end

-- The number of the conversation's pairs of kind and source after the batch; 0 where it brings no new one.
local function pairs_after()
  local names, fresh = {}, 0
  for pair in pairs(log.times) do names[#names + 1] = pair end
  for _, is_known in ipairs(#names > 0 and redis.call('SMISMEMBER', root .. ':pairs', unpack(names)) or {}) do
    fresh = fresh + 1 - is_known
  end
  return fresh > 0 and redis.call('SCARD', root .. ':pairs') + fresh or 0
end
