-- append_events: append a batch, each event once per id, with what it means for the conversation's state.
-- An executable action opens; an observation closes it. What is newly open and held by the policy makes
-- the conversation wait, unless it is a lone Finish or Think action. In a sandbox the agent itself says when it waits.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 id of the sandbox that sends them ("" none), which must be the conversation's
--       then six per event: id, "KIND:SOURCE" escaped, time in µs, bytes ("" is not stored), text record ("" none),
--       effect: "" | "set" LF (field LF value)… | "close" LF action id | "close_call" LF call
--             | "open" LF risk LF lone ("1": waits only in company) LF group LF call LF iso LF fragment
--             | "snapshot" LF (field LF value)…: as set, unless it is the last snapshot come again
--             | "live" LF bytes: told to the followers alone
-- Returns  {"appended" | "foreign": another sandbox sends, revision, execution_status, created_at, updated_at, groups,
--          number appended, last seq} | false: no such conversation
-- Cost  O(e log n): e events of the batch, n of the conversation; a lone action also O(p), p open actions
-- Idempotent  by event id: a known id is passed over with its effect
-- include: _log.lua
if not open_log(ARGV[1]) then return false end
local sandbox = redis.call('HGET', root, 'sandbox_id') or ''
if ARGV[5] ~= sandbox then
  return close_log('foreign', ARGV[4], 0, log.seq)
end
local stamp, appended, opened = {iso = ARGV[2], score = ARGV[3]}, 0, {}


-- The ids of the open actions that bear a tool call: nearly always one.
local function ids_of(call)
  local stored = redis.call('HGET', root .. ':calls', call)
  return stored and cjson.decode(stored) or {}
end

local function open(id, seq, score, effect)
  local risk, lone, group, call, iso, fragment =
    string.match(effect, '^open\n(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.*)$')
  redis.call('HSET', root .. ':pending', id,
    table.concat({seq, score, iso, ARGV[4], group, call, fragment}, '\n'))
  if call ~= '' then
    local ids = ids_of(call)
    ids[#ids + 1] = id
    redis.call('HSET', root .. ':calls', call, cjson.encode(ids))
  end
  local held = sandbox == '' and string.find(log.held, risk, 1, true) ~= nil
  opened[#opened + 1] = {id = id, score = score, iso = iso, lone = lone == '1', group = group, held = held}
end

local function close(id)
  local action = redis.call('HGET', root .. ':pending', id)
  if not action then return end
  redis.call('HDEL', root .. ':pending', id)
  local call = string.match(action, '^.-\n.-\n.-\n.-\n.-\n(.-)\n')
  local others = {}
  for _, other in ipairs(ids_of(call)) do
    if other ~= id then others[#others + 1] = other end
  end
  if #others > 0 then redis.call('HSET', root .. ':calls', call, cjson.encode(others))
  else redis.call('HDEL', root .. ':calls', call) end
end

local function set(effect)
  log.changed = true
  for field, value in string.gmatch(effect, '\n([^\n]*)\n([^\n]*)') do
    if field == 'execution_status' then log.status = value
    elseif field == 'held' then log.held = value
    else redis.call('HSET', root, field, value) end
  end
end

-- An agent that heard no answer sends its last batch again: a snapshot in it is older than what followed.
local function set_snapshot(id, effect)
  if redis.call('HGET', root, 'snapshot_id') == id then return end
  redis.call('HSET', root, 'snapshot_id', id)
  set(effect)
end

local function in_company(action)
  local members = 0
  for _, other in ipairs(open_actions()) do
    if other.group == action.group then members = members + 1 end
  end
  return action.group ~= '' and members > 1
end

for i = 6, #ARGV, 6 do
  local id, pair, score, bytes, text, effect = unpack(ARGV, i, i + 5)
  local seq = bytes == '' or append_event(id, pair, score, bytes, text)
  if seq then
    if bytes ~= '' then appended = appended + 1 end
    local verb = string.match(effect, '^[^\n]*')
    if verb == 'open' then open(id, seq, score, effect)
    elseif verb == 'set' then set(effect)
    elseif verb == 'close' then close(string.sub(effect, 7))
    elseif verb == 'close_call' then
      for _, action_id in ipairs(ids_of(string.sub(effect, 12))) do close(action_id) end
    elseif verb == 'snapshot' then set_snapshot(id, effect)
    elseif verb == 'live' then redis.call('PUBLISH', root .. ':signal', string.sub(effect, 6))
    end
  end
end

local waiting = {}
for _, action in ipairs(opened) do
  if action.held and redis.call('HEXISTS', root .. ':pending', action.id) == 1
    and (not action.lone or in_company(action)) then
    waiting[#waiting + 1] = action
  end
end
if #waiting > 0 and log.status ~= 'waiting_for_confirmation' then
  set_status('waiting_for_confirmation', not_before(waiting, stamp))
end
return close_log('appended', ARGV[4], appended, log.seq)
