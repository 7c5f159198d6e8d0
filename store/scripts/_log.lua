-- _log: one conversation's log, opened for appending. Included by every script that writes events.
-- `root` is KEYS[1]; a `stamp` is {iso = naive UTC text, score = microseconds as text}.
local root = KEYS[1]
local log = {}

local CHUNK_BYTES = 8 * 1024 * 1024 -- a text chunk that has reached this is closed, so that workers fetch and keep chunks

-- Reads the state that appending needs; false when there is no such conversation.
-- id_prefix: first 24 characters of a UUID that the caller chose, so that a repeated call mints the same ids.
local function open_log(id_prefix)
  local state = redis.call('HMGET', root, 'execution_status', 'held', 'created_at', 'updated_at', 'seq', 'text_chunk',
    'revision', 'groups')
  if not state[1] then return false end
  log.status, log.held, log.created_at, log.updated_at = unpack(state)
  log.seq, log.chunk, log.revision, log.groups = tonumber(state[5]), tonumber(state[6]), tonumber(state[7]), state[8] or ''
  log.seq_before, log.id_prefix, log.minted, log.texts, log.pairs, log.changed = log.seq, id_prefix, 0, {}, {}, false
  return true
end

local function minted_id(number)
  return log.id_prefix .. string.format('%012x', number)
end

local function next_id()
  log.minted = log.minted + 1
  return minted_id(log.minted)
end

local function octal(number)
  return (string.gsub(string.format('%011o', number), '%d', function(digit)
    return string.char(0xF8 + tonumber(digit))
  end))
end

-- Appends one event with all its index entries, once per id. Returns its seq, or false when the id is known.
local function append_event(id, pair, score, bytes, text)
  local seq = log.seq + 1
  if redis.call('HSETNX', root .. ':ids', id, string.format('%d', seq)) == 0 then return false end
  log.seq, log.changed = seq, true
  redis.call('RPUSH', root .. ':log', bytes)
  redis.call('ZADD', root .. ':at:' .. pair, score, string.format('%010d', seq))
  log.pairs[pair] = true
  if text ~= '' then log.texts[#log.texts + 1] = '\247' .. octal(seq) .. text end
  return seq
end

local function state_event(key, value, stamp)
  local id = next_id()
  append_event(id, 'ConversationStateUpdateEvent:environment', stamp.score,
    '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"environment","key":"' .. key ..
    '","value":' .. value .. ',"kind":"ConversationStateUpdateEvent"}', '')
end

local function set_status(status, stamp)
  log.status = status
  state_event('execution_status', '"' .. status .. '"', stamp)
end

-- The open, unanswered actions in log order: {id, seq, score, iso, since, group, call, fragment}.
local function open_actions()
  local stored, actions = redis.call('HGETALL', root .. ':pending'), {}
  for i = 1, #stored, 2 do
    local seq, score, iso, since, group, call, fragment =
      string.match(stored[i + 1], '^(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.*)$')
    actions[#actions + 1] = {id = stored[i], seq = tonumber(seq), score = score, iso = iso, since = since,
      group = group, call = call, fragment = fragment}
  end
  table.sort(actions, function(a, b) return a.seq < b.seq end)
  return actions
end

-- What we write about an action never bears an earlier time than the action, whatever the agent's clock says.
local function not_before(actions, stamp)
  for _, action in ipairs(actions) do
    if tonumber(action.score) > tonumber(stamp.score) then stamp = {iso = action.iso, score = action.score} end
  end
  return stamp
end

-- Nothing that is open can be answered any more.
local function close_actions()
  redis.call('DEL', root .. ':pending', root .. ':calls')
end

-- Rejects every given action: status idle, then one UserRejectObservation each, in log order.
local function reject_actions(actions, reason, stamp)
  stamp = not_before(actions, stamp)
  set_status('idle', stamp)
  for _, action in ipairs(actions) do
    local id = next_id()
    append_event(id, 'UserRejectObservation:environment', stamp.score,
      '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"environment",' .. action.fragment ..
      ',"rejection_reason":' .. reason .. ',"rejection_source":"user","kind":"UserRejectObservation"}', '')
  end
  close_actions()
  return stamp
end

-- Writes back what changed, tells the followers, and returns what every script that writes answers with:
-- {outcome, revision, execution_status, created_at, updated_at, groups, title as JSON, more…}. now: UTC text with Z.
local function close_log(outcome, now, ...)
  if log.changed then
    log.revision, log.updated_at = log.revision + 1, now
    for pair in pairs(log.pairs) do redis.call('SADD', root .. ':pairs', pair) end
    if #log.texts > 0 then
      if redis.call('STRLEN', root .. ':text:' .. log.chunk) >= CHUNK_BYTES then log.chunk = log.chunk + 1 end
      redis.call('APPEND', root .. ':text:' .. log.chunk, table.concat(log.texts))
    end
    redis.call('HSET', root, 'seq', string.format('%d', log.seq), 'execution_status', log.status, 'held', log.held,
      'text_chunk', string.format('%d', log.chunk), 'revision', string.format('%d', log.revision), 'updated_at', now)
    redis.call('PUBLISH', root .. ':signal', log.seq > log.seq_before and string.format('%d', log.seq) or 'state')
  end
  return {outcome, log.revision, log.status, log.created_at, log.updated_at, log.groups, redis.call('HGET', root, 'title') or 'null', ...}
end
