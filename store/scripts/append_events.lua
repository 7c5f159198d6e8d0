-- append_events: append a batch, each event once per id, with its effect on the conversation's state.
-- An executable action opens, and an observation closes it. A new action that the policy holds makes the conversation
-- wait, unless it is a single Finish or Think action. In a sandbox the agent's state events say when it waits. An
-- unexpected claim of a sandbox refuses the batch: the caller disowns those events and calls again. If an agent goes on
-- without a decision, an event names it. An action whose end arrived first never opens. Too many pending actions refuse
-- the batch. If the policy holds nothing, and in a sandbox, the oldest open actions are dropped instead. A refused
-- batch has written nothing.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp  sandbox:text id of the sending sandbox, which must be the conversation's; "" none
--       most_open:int actions  most_pairs:int of kind and source
--       made_here:flag whether the server itself made the events  actor:json who posts them, canonical
--       expiry:int default seconds until a pending action expires; 0: never  most_bytes:int of the log
--       secrets_version:text of the secrets that are masked in the events
--       posted:int? required number of events that the agent has posted; absent: any
--       asked:json {kind, order, subagent, lease, patience} of the batch's action that an asker awaits; "" none
--       unasked:json why actions of this batch ran without a decision, canonical; "" none
--       audited:flag whether those actions are audited as unapproved, or only in the log
--       events:(id:text pair:text at:micros event:bytes record:bytes effect:words)* at most 1,000: KIND:SOURCE escaped,
--       bytes ("" is not stored), text ("" none), "" or the JSON object of `store/approvals/effects.py`
-- Returns  "appended"(state:log_state number:int last:int resumed:json trace:text): number of new events, last seq, ids
--          of actions that the agent resumed ("" none), W3C traceparent of a decision for the agent's next batch (""
--          none) | "unowned"(state:log_state places:json): indexes of events, from 0
--          | "foreign"(state:log_state): from another sandbox
--          | "unmasked"(state:log_state): the conversation has other secrets | "too_many_pending"(state:log_state)
--          | "too_many_pairs"(state:log_state) | "too_long"(state:log_state)
--          | "outdated"(state:log_state): the agent has posted another number of events | missing: no such conversation
-- Cost  O(e log n + p log p): e events of the batch, n of the conversation, p open actions, at most most_open + e.
--       A dozen calls and one per pair of the batch; reads p records once, writes each event once
-- Idempotent  by event id: a known event is skipped with its effect
-- Log  needed
-- Brings  bytes
-- include: _actions.lua
-- include: _asked.lua
-- include: _masked.lua

-- The open actions during an append: read once, changed in memory, written back once.
local open -- nil until an event concerns an action

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

-- Returns whether an action is open and waits. A harmless action waits only beside others of its response.
local function waits(action)
  local in_company = action.group ~= '' and (open.in_group[action.group] or 0) > 1
  return open.by_id[action.id] ~= nil and (not action.harmless or in_company)
end

-- Drops the oldest open actions, decided ones first. They stay in the log, and can no longer be decided.
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

-- Sets the deadline of undecided actions, in seconds from now (0: never). begins: for all of them, because the
-- conversation begins to wait; otherwise only for new ones.
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

-- Takes the traceparent of a decision, which is for one batch.
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
        digest = action.digest, tool = action.tool, shown = action.shown, risk = action.risk, expires = action.expires,
        size = action.size, trace = action.trace, ask = action.ask})
    end
  end
  call_with_all('HDEL', root .. ':pending', open.closed)
  call_with_all('HSET', root .. ':pending', words)
end

-- Returns the number of the conversation's pairs of kind and source after the batch; 0 without a new one.
local function pairs_after()
  local names, fresh = {}, 0
  for pair in pairs(log.times) do names[#names + 1] = pair end
  for _, is_known in ipairs(#names > 0 and redis.call('SMISMEMBER', root .. ':pairs', unpack(names)) or {}) do
    fresh = fresh + 1 - is_known
  end
  return fresh > 0 and redis.call('SCARD', root .. ':pairs') + fresh or 0
end

-- Claims of a sandbox's batch about people (see `store/approvals/effects.py`), and actions that its agent resumed
-- without a decision of this server.
local WAITING = 'waiting_for_confirmation'
local MOST_EARLY = 64 -- early ends of actions; the oldest are dropped
local sender -- of the last message to the agent: {actor, said = its reason to reject, each as canonical JSON}; nil: none
local expected -- claim → its members of conv:{id}:echoes; nil until an event claims something
local spent, unowned, resumed, overtaken = {}, {}, {}, {}
local by_message = {} -- ids of actions that a message rejects

-- Fields that clients also set. The agent's value is ignored until it has the client's.
local LABELS = {title = true, folded_title = true, tags = true}

local function read_expected()
  if expected then return end
  expected = {}
  for _, member in ipairs(redis.call('ZRANGE', root .. ':echoes', 0, -1)) do
    local of = string.match(member, '^(.*) %S+$')
    expected[of] = expected[of] or {}
    table.insert(expected[of], member)
  end
end

-- Returns whether the agent still has to echo a message.
local function expects_message()
  for claim, members in pairs(expected) do
    if #members > 0 and string.sub(claim, 1, 8) == 'message ' then return true end
  end
  return false
end

-- Returns whether a claim rejects a pending action while the agent has not echoed a message: the message overtook the
-- action, which was not posted when the message was sent.
local function is_overtaken(claim)
  local id = string.match(claim, '^reject (.*)$')
  if not id or not sender or log.status ~= WAITING or not expects_message() then return false end
  read_open()
  by_message[id] = open.by_id[id] ~= nil and not open.by_id[id].decided
  return by_message[id]
end

-- Returns whether a claim is expected. Each expected echo supports one claim.
local function is_owned(claim)
  read_expected()
  local member = expected[claim] and table.remove(expected[claim], 1)
  if member then spent[#spent + 1] = member end
  return member ~= nil or claim == 'policy ' .. log.held or is_overtaken(claim)
end

local function forget_spent()
  for _, member in ipairs(spent) do redis.call('ZREM', root .. ':echoes', member) end
end

-- Handles an action that the agent closes without a decision here: by itself, or because a message rejects it.
local function note_closed(id, fetched)
  read_open()
  local action = open.by_id[id]
  if log.status ~= WAITING or not action or action.decided then return end
  if by_message[id] then overtaken[#overtaken + 1] = action elseif not fetched then resumed[#resumed + 1] = action end
end

-- Handles a status of the agent: if it stops waiting, the pending actions are resumed, and in a sandbox undecidable.
local function note_left(status, in_sandbox)
  if log.status ~= WAITING or status == WAITING then return end
  read_open()
  local left = {}
  for _, action in pairs(open.by_id) do
    if not action.released then left[#left + 1] = action end
  end
  table.sort(left, function(a, b) return a.seq < b.seq end)
  for _, action in ipairs(left) do
    if in_sandbox or not action.decided then resumed[#resumed + 1] = action end
    if in_sandbox then close_action(action.id) end
  end
end

-- Audits the actions that the agent ended. by: the poster, as canonical JSON. time: UTC text with Z.
local function audit_ended(by, time)
  if #overtaken > 0 then write_audit('reject', overtaken, sender.actor, sender.said, time) end
  if #resumed > 0 then write_audit('unapproved', resumed, by, '"The agent went on without a decision."', time) end
  if #overtaken + #resumed > 0 then change_approvals() end
end

-- Appends an event that names the resumed actions. Returns their ids as a JSON list, '' for none.
local function append_resumed_event(stamp, before)
  if #resumed == 0 then return '' end
  local ids, id, named = {}, next_id(), ''
  for i, action in ipairs(resumed) do
    ids[i] = action.id
    if i <= 10 then named = named .. (i > 1 and ', ' or '') .. action.id end
  end
  if #ids > 10 then named = named .. ' and ' .. (#ids - 10) .. ' more' end
  stamp = not_before(resumed, stamp)
  append_event(id, 'ConversationErrorEvent:environment', stamp.score,
    '{"id":"' .. id .. '","timestamp":"' .. stamp.iso .. '","source":"environment","code":"unapproved_resume","detail":' ..
    cjson.encode('The agent went on without a decision of this server about the action ' .. named) ..
    ',"kind":"ConversationErrorEvent"}', '')
  log.fields.unapproved_resumes = string.format('%d', (before or 0) + 1)
  return cjson.encode(ids)
end

if not open_log(stamp.id_prefix) then return false end
local state = redis.call(
  'HMGET', root, 'sandbox_id', 'final_at', 'posted', 'unapproved_resumes', 'state_at', 'labels_due',
  'confirmation_seconds', 'decided_trace', 'secrets_version', 'incarnation',
  'unattended', 'early_ends', 'sender')
local final_at, state_at = state[2] or '-inf', state[5] or '-inf'
if sandbox ~= (state[1] or '') then return close_log('foreign', stamp.utc) end
if secrets_version ~= version_of_secrets(state[9], state[10]) then return close_log('unmasked', stamp.utc) end
if posted and posted ~= tonumber(state[3] or 0) then return close_log('outdated', stamp.utc) end
local by_agent = sandbox ~= '' and not made_here
sender = state[13] and cjson.decode(state[13])
local waited, held, live, ran, ends_run = log.status == WAITING, {}, {}, {}, false

-- The asker in the record of the action: `_asked.lua`.
local awaited = asked ~= '' and cjson.decode(asked) or nil
if awaited then awaited.ends, awaited.lapses = after_seconds(awaited.patience), after_seconds(awaited.lease) end

local function refuse(outcome, ...)
  open_log(stamp.id_prefix)
  return close_log(outcome, stamp.utc, ...)
end

local function known_ids()
  local ids = {}
  for id in events() do ids[#ids + 1] = id end
  return seqs_of(ids, log.stored)
end

-- An agent that received no response sends its last batch again, and its snapshot is older than the events since. An
-- event from the agent's own log may also be older.
local function set(fields, snapshot_id, score, fetched)
  if by_agent and is_later(score, state_at) then state_at, log.fields.state_at = score, score elseif fetched then return end
  if snapshot_id and redis.call('HGET', root, 'snapshot_id') == snapshot_id then return end
  log.changed, log.fields.snapshot_id = true, snapshot_id or log.fields.snapshot_id
  for name, value in pairs(fields) do
    if name == 'execution_status' then
      if not made_here then note_left(value, by_agent) end
      ends_run = ends_run or (snapshot_id and log.status == 'running' and value ~= 'running')
      log.status = value
    elseif by_agent and snapshot_id and (name == 'held' or name == 'confirmation_policy') then -- nothing supports these
    elseif by_agent and state[6] and LABELS[name] then -- it does not have the client's yet
    elseif name == 'held' then log.held = value
    else log.fields[name] = value end
  end
end

-- Ends of actions that a sandbox posted before the actions: {"id ID" or "call CALL", time of the end}. This happens
-- with a delayed webhook, and with events from an agent's log.
local early = cjson.decode(state[12] or '[]')

local function note_early(of, score)
  early[#early + 1] = {of, score}
  if #early > MOST_EARLY then table.remove(early, 1) end
  log.fields.early_ends = cjson.encode(early)
end

-- Returns whether the end of an action arrived first. An agent may reuse the id of a call: an earlier end is of another
-- action.
local function ended_before(action)
  for _, one in ipairs(early) do
    local is_its = one[1] == 'id ' .. action.id or one[1] == 'call ' .. action.call
    if is_its and is_later(one[2], action.at) then return true end
  end
  return false
end

-- Ends an action of a sandbox. If it is not open, the end is stored, unless the log has the action.
local function end_action(id, score)
  read_open()
  if by_agent and not open.by_id[id] and not seq_of(id, log.stored) then note_early('id ' .. id, score) end
  close_action(id)
end

local function end_call(call, score)
  read_open()
  if by_agent and not next(open.by_call[call] or {}) then note_early('call ' .. call, score) end
  close_call(call)
end

local function apply(effect, id, seq, score)
  if effect.open then
    local action = effect.open
    action.id, action.seq, action.at, action.since, action.ask = id, seq, score, stamp.utc, awaited
    if not ended_before(action) then open_action(action) end
    if unasked ~= '' then ran[#ran + 1] = action
    elseif sandbox == '' and (awaited or string.find(log.held, action.risk, 1, true)) then held[#held + 1] = action end
  end
  if effect.close then
    if not made_here then note_closed(effect.close, effect.fetched) end
    end_action(effect.close, score)
  end
  if effect.close_call then end_call(effect.close_call, score) end
  if effect.set then set(effect.set, effect.snapshot and id, score, effect.fetched) end
  if effect.final and is_later(score, final_at) then
    final_at, log.fields.final_at, log.fields.final_seq = score, score, string.format('%d', seq)
  end
end

local known, appended, place = known_ids(), 0, -1
for id, pair, score, bytes, text, effect in events() do
  place = place + 1
  effect = effect ~= '' and cjson.decode(effect) or {}
  if effect.claim and not known[id] and not is_owned(effect.claim) then
    unowned[#unowned + 1] = string.format('%d', place)
  elseif effect.live then live[#live + 1] = bytes
  elseif bytes == '' then apply(effect, id, nil, score)
  elseif not known[id] then
    known[id], appended = true, appended + 1
    apply(effect, id, append_event(id, pair, score, bytes, text), score)
  end
end
if #unowned > 0 then return refuse('unowned', '[' .. table.concat(unowned, ',') .. ']') end

if pairs_after() > most_pairs then return refuse('too_many_pairs') end
if appended > 0 and log.bytes > most_bytes then return refuse('too_long') end

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
if waits_now then set_deadlines(tonumber(state[7] or expiry), not waited) end
for _, action in ipairs(held) do end_gate(action) end
write_open()
if waits_now ~= waited or (waits_now and open) then change_approvals() end
audit_ended(actor, stamp.utc)
if #ran > 0 then
  if audited then write_audit('unapproved', ran, actor, unasked, stamp.utc) end
  change_approvals()
  log.fields.unapproved_resumes = string.format('%d', (state[4] or 0) + 1)
end
if #waiting > 0 and log.status ~= WAITING then set_status(WAITING, not_before(waiting, stamp)) end
forget_spent()
local told = by_agent and append_resumed_event(stamp, state[4]) or ''
for _, bytes in ipairs(live) do redis.call('PUBLISH', root .. ':signal', bytes) end
if ends_run then redis.call('PUBLISH', root .. ':signal', 'state') end
if not made_here and state[11] then redis.call('HDEL', root, 'unattended') end
local trace = not made_here and appended > 0 and take_trace(state[8] or '') or ''
return close_log('appended', stamp.utc, appended, log.seq, told, trace)
