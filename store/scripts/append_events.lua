-- append_events: append a batch, each event once per id, with its effect on the conversation's state.
-- An executable action opens; an observation closes it. A newly opened action that the policy holds makes the
-- conversation wait, unless it is a lone Finish or Think action. In a sandbox the agent's state events say when it waits.
-- A claim of a sandbox that is not expected refuses the batch: the caller disowns those events and calls again. An agent
-- that goes on without a decision is named by an event.
-- More actions than may wait refuse the batch; where the policy holds nothing, and in a sandbox, the oldest open
-- actions are forgotten instead. A refused batch has written nothing.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 id of the sandbox that sends them ("" none), which must be the conversation's
--       6 most open actions   7 most "KIND:SOURCE" pairs   8 "1" where the server itself made the events, else ""
--       9 who posts them, as canonical JSON   10 seconds until a pending action expires, where the conversation says
--       nothing (0: never)
--       then six per event, at most 1,000 events: id, "KIND:SOURCE" escaped, time in µs, bytes ("" is not stored),
--       text record ("" none), effect: "" or the JSON object that `store/approvals/effects.py` describes
-- Returns  {"appended" | "foreign": another sandbox sends | "too_many_pending" | "too_many_pairs" | "unowned", revision,
--          execution_status, created_at, updated_at, groups, title, whether approvals matter, number appended, last seq, JSON list: the places of
--          unowned events, from 0, or the ids of actions that the agent resumed; "" none, W3C traceparent that a decision left
--          for the agent's next batch; "" none} | false: no such conversation
-- Cost  O(e log n + p log p): e events of the batch, n of the conversation, p open actions, at most ARGV 6 + e.
--       A dozen calls and one per pair of the batch; reads p records once, writes each event once
-- Idempotent  by event id: the event of a known id is skipped with its effect
-- include: _clock.lua
-- include: _log.lua
-- include: _sha256.lua
-- include: _audit.lua
-- include: _actions.lua
-- include: _batch.lua
-- include: _claims.lua
if not open_log(ARGV[1]) then return false end
local state = redis.call(
  'HMGET', root, 'sandbox_id', 'final_at', 'posted', 'unapproved_resumes', 'state_at', 'labels_due',
  'confirmation_seconds', 'decided_trace')
local sandbox, final_at, state_at = state[1] or '', state[2] or '-inf', state[5] or '-inf'
if ARGV[5] ~= sandbox then return close_log('foreign', ARGV[4], 0, log.seq, '', '') end
local by_agent = sandbox ~= '' and ARGV[8] == ''
local stamp, most_open, most_pairs = {iso = ARGV[2], score = ARGV[3]}, tonumber(ARGV[6]), tonumber(ARGV[7])
local FIRST, STEP = 11, 6
local waited, held, live, ends_run = log.status == WAITING, {}, {}, false

local function refuse(outcome, places)
  open_log(ARGV[1])
  return close_log(outcome, ARGV[4], 0, log.seq, places or '', '')
end

local function known_ids()
  local ids = {}
  for i = FIRST, #ARGV, STEP do ids[#ids + 1] = ARGV[i] end
  return seqs_of(ids, log.stored)
end

-- An agent that received no response sends its last batch again: its snapshot is older than the events since. So may an
-- event be that was fetched from the agent's own log.
local function set(fields, snapshot_id, score, fetched)
  if by_agent and is_later(score, state_at) then state_at, log.fields.state_at = score, score elseif fetched then return end
  if snapshot_id and redis.call('HGET', root, 'snapshot_id') == snapshot_id then return end
  log.changed, log.fields.snapshot_id = true, snapshot_id or log.fields.snapshot_id
  for name, value in pairs(fields) do
    if name == 'execution_status' then
      if ARGV[8] == '' then note_left(value, by_agent) end
      ends_run = ends_run or (snapshot_id and log.status == 'running' and value ~= 'running')
      log.status = value
    elseif by_agent and snapshot_id and (name == 'held' or name == 'confirmation_policy') then -- nothing bears them out
    elseif by_agent and state[6] and (name == 'title' or name == 'tags') then -- it does not have the client's yet
    elseif name == 'held' then log.held = value
    else log.fields[name] = value end
  end
end

local function apply(effect, id, seq, score)
  if effect.open then
    local action = effect.open
    action.id, action.seq, action.at, action.since = id, seq, score, ARGV[4]
    open_action(action)
    if sandbox == '' and string.find(log.held, action.risk, 1, true) then held[#held + 1] = action end
  end
  if effect.close then
    if ARGV[8] == '' and not effect.fetched then note_closed(effect.close) end
    close_action(effect.close)
  end
  if effect.close_call then close_call(effect.close_call) end
  if effect.set then set(effect.set, effect.snapshot and id, score, effect.fetched) end
  if effect.final and is_later(score, final_at) then
    final_at, log.fields.final_at, log.fields.final_seq = score, score, string.format('%d', seq)
  end
end

local known, appended = known_ids(), 0
for i = FIRST, #ARGV, STEP do
  local id, pair, score, bytes, text, effect = unpack(ARGV, i, i + STEP - 1)
  effect = effect ~= '' and cjson.decode(effect) or {}
  if effect.claim and not known[id] and not is_owned(effect.claim) then
    unowned[#unowned + 1] = string.format('%d', (i - FIRST) / STEP)
  elseif effect.live then live[#live + 1] = bytes
  elseif bytes == '' then apply(effect, id, nil, score)
  elseif not known[id] then
    known[id], appended = true, appended + 1
    apply(effect, id, append_event(id, pair, score, bytes, text), score)
  end
end
if #unowned > 0 then return refuse('unowned', '[' .. table.concat(unowned, ',') .. ']') end

if pairs_after() > most_pairs then return refuse('too_many_pairs') end

local waiting = {}
for _, action in ipairs(held) do
  if waits(action) then waiting[#waiting + 1] = action end
end
local waits_now = #waiting > 0 or log.status == WAITING
if open and waits_now and sandbox == '' and log.held ~= '' and (waited and open.undecided or open.fresh) > most_open then
  return refuse('too_many_pending')
end
if by_agent and appended > 0 then
  log.fields.posted = string.format('%d', (state[3] or 0) + appended)
end
forget_beyond(most_open)
if waits_now then set_deadlines(tonumber(state[7] or ARGV[10]), not waited) end
write_open()
if waits_now ~= waited or (waits_now and open) then change_approvals() end
audit_resumed(ARGV[9], ARGV[4])
if #waiting > 0 and log.status ~= WAITING then set_status(WAITING, not_before(waiting, stamp)) end
forget_spent()
local told = by_agent and say_resumed(stamp, state[4]) or ''
for _, bytes in ipairs(live) do redis.call('PUBLISH', root .. ':signal', bytes) end
if ends_run then redis.call('PUBLISH', root .. ':signal', 'state') end
local trace = ARGV[8] == '' and appended > 0 and take_trace(state[8] or '') or ''
return close_log('appended', ARGV[4], appended, log.seq, told, trace)
