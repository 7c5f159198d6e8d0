-- _log: a conversation's log, opened for appending.
-- Included by every script that writes events. Appended events are collected and written by close_log, so that a script
-- that refuses a batch has written nothing. A stamp is the time of a request: naive UTC text, µs, UTC text with Z; and
-- the first 24 characters of the ids of the events that it may write. A state is the reply of every script that writes
-- events; title: as JSON; approvals: whether the index of approvals still has to be updated; listed: whether the
-- listing has this state.
-- Shape  stamp(id_prefix:text iso:text score:micros utc:text)
-- Shape  log_state(revision:int status:text created_at:text updated_at:text groups:text title:json approvals:flag listed:flag)
-- include: _ids.lua

-- Returns the bucket whose entries are divided to fill a new one.
local function divided_for(number)
  local size = 1
  while size * 2 <= number do size = size * 2 end
  return number - size
end

local function divide(before, after)
  for number = before, after - 1 do
    local stay, go, whole = {}, {}, buckets[divided_for(number)]
    for at = 1, #whole, ENTRY do
      local entry = string.sub(whole, at, at + ENTRY - 1)
      local part = bucket_of(entry, number + 1) == number and go or stay
      part[#part + 1] = entry
    end
    buckets[divided_for(number)], buckets[number] = table.concat(stay), table.concat(go)
  end
end

local function entry_of(id, seq)
  return packs[id] .. string.char(math.floor(seq / 16777216), math.floor(seq / 65536) % 256, math.floor(seq / 256) % 256, seq % 256)
end

-- Enters ids that the log lacks: {id, seq, id, seq, …}, at most about 1,300. first, last: last seq of the log before
-- and after.
local function enter_ids(words, first, last)
  local before, after, wanted, changed, places = buckets_at(first), buckets_at(last), {}, {}, {}
  for number = before, after - 1 do
    local divided = divided_for(number)
    wanted[divided], changed[number], changed[divided] = divided < before or nil, true, true
  end
  for i = 1, #words, 2 do
    local entry = packed(words[i])
    places[i] = entry and bucket_of(entry, after)
    if entry and places[i] < before then wanted[places[i]] = true end
  end
  read_buckets(wanted)
  divide(before, after)
  local loose, fields = {}, {}
  for i = 1, #words, 2 do
    local place = places[i]
    if place and #buckets[place] < MOST_BYTES then
      buckets[place], changed[place] = buckets[place] .. entry_of(words[i], tonumber(words[i + 1])), true
    else
      loose[#loose + 1], loose[#loose + 2] = words[i], words[i + 1]
    end
  end
  for number in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = string.format('%d', number), buckets[number]
  end
  if #fields > 0 then redis.call('HSET', root .. ':seqs', unpack(fields)) end
  if #loose > 0 then redis.call('HSET', root .. ':ids', unpack(loose)) end
end

-- Returns the size of the log in Redis. counted: false for a log that is older than the count; it is then estimated by
-- Redis, once.
local function bytes_of(counted)
  if counted then return counted end
  local bytes, last = 0, tonumber(redis.call('HGET', root, 'text_chunk'))
  for chunk = -1, last do
    local size = redis.pcall('MEMORY', 'USAGE', root .. (chunk < 0 and ':log' or ':text:' .. chunk)) -- not in fakeredis
    if type(size) == 'number' then bytes = bytes + size end
  end
  return bytes
end
local log = {}

local CHUNK_BYTES = 8 * 1024 * 1024 -- size at which a text chunk is closed, so that workers can cache it
local BLOCK = 1000 -- seqs per member of conv:{ID}:peaks
local MOST_WORDS = 4000 -- per call: Lua's stack holds 8,000 values

-- Reads the state for appending, and drops collected events; false if there is no such conversation. id_prefix: first
-- 24 characters of a UUID that the caller chose, so that a repeated call mints the same ids.
local function open_log(id_prefix)
  local state = redis.call('HMGET', root, 'execution_status', 'held', 'created_at', 'updated_at', 'seq', 'text_chunk',
    'revision', 'groups', 'latest_at', 'log_bytes')
  if not state[1] then return false end
  log.status, log.held, log.created_at, log.updated_at = unpack(state)
  log.seq, log.chunk, log.revision, log.groups = tonumber(state[5]), tonumber(state[6]), tonumber(state[7]), state[8] or ''
  log.latest_at, log.id_prefix, log.minted, log.changed, log.stored = state[9] or '-inf', id_prefix, 0, false, log.seq
  log.events, log.ids, log.times, log.peaks, log.texts, log.fields, log.bytes = {}, {}, {}, {}, {}, {}, bytes_of(state[10])
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

local function is_later(score, than)
  return than == '-inf' or tonumber(score) >= tonumber(than)
end

-- Appends an event with a new id. Returns its seq.
local function append_event(id, pair, score, bytes, text)
  local seq = log.seq + 1
  log.seq, log.changed, log.bytes = seq, true, log.bytes + #bytes + #text
  log.events[#log.events + 1] = bytes
  log.ids[#log.ids + 1], log.ids[#log.ids + 2] = id, string.format('%d', seq)
  local times = log.times[pair] or {}
  log.times[pair] = times
  times[#times + 1], times[#times + 2] = score, string.format('%010d', seq)
  if is_later(score, log.latest_at) then log.latest_at = score end
  log.peaks[math.floor((seq - 1) / BLOCK)] = log.latest_at
  if text ~= '' then log.texts[#log.texts + 1] = '\247' .. octal(seq) .. text end
  return seq
end

local function state_event_of(id, key, value, stamp)
  append_event(id, 'ConversationStateUpdateEvent:environment', stamp.score,
    '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"environment","key":"' .. key ..
    '","value":' .. value .. ',"kind":"ConversationStateUpdateEvent"}', '')
end

local function state_event(key, value, stamp)
  state_event_of(next_id(), key, value, stamp)
end

local function set_status(status, stamp)
  log.status = status
  state_event('execution_status', '"' .. status .. '"', stamp)
end

local function call_with_all(command, key, words)
  for first = 1, #words, MOST_WORDS do
    redis.call(command, key, unpack(words, first, math.min(first + MOST_WORDS - 1, #words)))
  end
end

local function write_events()
  call_with_all('RPUSH', root .. ':log', log.events)
  enter_ids(log.ids, log.stored, log.seq)
  local names, peaks = {}, {}
  for pair, times in pairs(log.times) do
    names[#names + 1] = pair
    call_with_all('ZADD', root .. ':at:' .. pair, times)
  end
  call_with_all('SADD', root .. ':pairs', names)
  for block, latest_at in pairs(log.peaks) do
    peaks[#peaks + 1], peaks[#peaks + 2] = latest_at, string.format('%d', block)
  end
  call_with_all('ZADD', root .. ':peaks', peaks)
  if #log.texts > 0 then
    if redis.call('STRLEN', root .. ':text:' .. log.chunk) >= CHUNK_BYTES then log.chunk = log.chunk + 1 end
    redis.call('APPEND', root .. ':text:' .. log.chunk, table.concat(log.texts))
  end
end

-- Writes the changes, signals new events to the followers, and returns the reply of every script that writes: {outcome,
-- fields of the state, more…}. now: UTC text with Z.
local function close_log(outcome, now, ...)
  if log.changed then
    log.revision, log.updated_at = log.revision + 1, now
    write_events()
    local fields = {'seq', string.format('%d', log.seq), 'execution_status', log.status, 'held', log.held,
      'text_chunk', string.format('%d', log.chunk), 'revision', string.format('%d', log.revision),
      'updated_at', now, 'latest_at', log.latest_at, 'log_bytes', string.format('%d', log.bytes)}
    for name, value in pairs(log.fields) do fields[#fields + 1], fields[#fields + 2] = name, value end
    call_with_all('HSET', root, fields)
    if #log.events > 0 then redis.call('PUBLISH', root .. ':signal', string.format('%d', log.seq)) end
  end
  return {outcome, log.revision, log.status, log.created_at, log.updated_at, log.groups, redis.call('HGET', root, 'title')
    or 'null', (log.approvals or log.status == 'waiting_for_confirmation') and '1' or '', '', ...}
end
