-- decide_pending: decide pending actions, all alike or each by itself.
-- The first decision of an action wins. Expired actions are rejected first, whatever the decision. Each decision is
-- audited. When the last pending action is decided, the conversation continues: running if any was approved, otherwise
-- idle. A rejected action gets its UserRejectObservation at once; an approved one stays open until it is observed. In a
-- sandbox the agent writes status and observations when it receives the decisions. They are stored in the fields
-- `delivery_…` until then, and the caller delivers them. An agent without the capability `decide_each` takes one
-- decision for all. If the agent ended the last undecided action by itself, the decisions of the others take effect
-- here.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp of the decision; in a sandbox its id_prefix is also the delivery's id
--       verb:text "approve" or "reject": all pending ones; "overtake": also reject decided ones with which the
--       conversation has not continued; "each": as in the argument `each`; "expire": only expired ones  reason:json
--       sandbox:text of the conversation; "" none
--       latest:micros? latest time of the decision by Redis' clock, as a later one might stay undelivered; absent: any
--       may_decide:flag whether the caller may  echo:text "CLAIM TOKEN" that the agent will make after this; "" none
--       actor:json canonical  said:json the reason, canonical
--       ballot:json the actor's vote where several people must approve, {voter, name = canonical JSON, and the right's
--       owner: key, or person and groups}; "" none  rights:json of a person, for `_rights.lua`; "" none
--       quorum:json for `_quorum.lua`; "" not read, so nothing is approved
--       at_terminal:flag the asker reports what was decided about actions that it awaits: no quorum holds that back,
--       and "each" may have "withdraw"
--       each:json list of {id, verb = "approve" | "reject" | "edit", reason = as JSON, said = reason as canonical JSON,
--       digest ("" any), since = of its record ("" any), arguments = as JSON, edited = their digest, edited_shown =
--       their description as canonical JSON}
-- Returns  (outcome:text state:log_state problems:json decided:json delivery:(id:text verb:text reason:json
--          actions:json decisions:text trace:text)[]): the outcome is "won", "agreed" (approvals were counted, and
--          nothing decided), "nothing_pending", "late", "forbidden", "changed" (the right of the caller), "unread" (the
--          quorum data are outdated) or "stale"; {action_id, problem} of the stale decisions; {verb, since, tool, call,
--          trace} of decided actions with a trace, "" none; in a sandbox the outstanding delivery, as in
--          `read_delivery.lua` | missing: no such conversation in that sandbox
-- Cost  O(p log n + d): p pending actions, n events of the conversation, d bytes of the audit entries
-- Idempotent  by id prefix: a repeat of the last decision that won returns "won" and writes nothing
-- Log  needed
-- include: _quorum.lua
-- include: _outstanding.lua
-- include: _echoes.lua

local UNHELD = '"Allowed at its terminal, though several people must approve it."'
local voter = ballot ~= '' and cjson.decode(ballot) or {voter = ''}
local read = quorum ~= '' and cjson.decode(quorum) or nil

-- Returns the actions that the given decisions approve, among the decidable ones.
local function approved_of(given, fresh)
  local is_given, found = {}, {}
  for _, one in ipairs(given) do is_given[one.id] = one.verb ~= 'reject' and one.verb ~= 'withdraw' end
  for _, action in ipairs(fresh) do
    if is_given[action.id] then found[#found + 1] = action end
  end
  return found
end

-- Returns the problems of the given decisions: {action_id, problem} each.
local function problems_of(given, fresh, over, together, edits)
  local waiting, problem_of, is_given, problems = {}, {}, {}, {}
  for _, action in ipairs(fresh) do waiting[action.id] = action end
  for problem, actions in pairs(over) do
    for _, action in ipairs(actions) do problem_of[action.id] = problem end
  end
  local function note(id, problem) problems[#problems + 1] = {action_id = id, problem = problem} end
  for _, one in ipairs(given) do
    local action = waiting[one.id]
    is_given[one.id] = true
    if problem_of[one.id] then note(one.id, problem_of[one.id])
    elseif not action or (at_terminal and not action.ask) then note(one.id, 'not_pending')
    elseif one.digest ~= '' and one.digest ~= action.digest then note(one.id, 'changed')
    elseif one.since ~= '' and one.since ~= action.since then note(one.id, 'changed')
    elseif at_terminal then -- it has already happened
    elseif one.verb == 'edit' and (together or not edits) then note(one.id, 'edit_not_understood')
    elseif together and one.verb ~= given[1].verb then note(one.id, 'decided_alike')
    elseif one.verb == 'edit' and held_by(read, action) then note(one.id, 'edit_of_several')
    elseif one.verb == 'approve' and problem_of_vote(read, action, voter) then
      note(one.id, problem_of_vote(read, action, voter))
    end
  end
  for _, action in ipairs(together and fresh or {}) do
    if not is_given[action.id] then note(action.id, 'decided_together') end
  end
  return problems
end

-- whether an approval was counted that is not the last one
local has_agreed = false

-- Returns the given decisions that take effect. An approval waits for others if several people must approve the action,
-- and also while another action waits so, if the agent takes one decision for all.
local function counted(given, fresh, by, together)
  local waiting, taken, is_whole = {}, {}, true
  for _, action in ipairs(fresh) do waiting[action.id] = action end
  for _, one in ipairs(given) do
    local said_by = {actor = by.actor, said = one.said, time = by.time}
    if at_terminal or one.verb ~= 'approve' or vote(read, waiting[one.id], voter, said_by) then
      taken[#taken + 1] = one
    else
      has_agreed, is_whole = true, false
    end
  end
  return (is_whole or not together) and taken or {}
end

local function choose_each(given, fresh, by)
  local waiting = {}
  for _, action in ipairs(fresh) do waiting[action.id] = action end
  for _, one in ipairs(given) do
    local action = waiting[one.id]
    local is_unheld = at_terminal and one.verb == 'approve' and held_by(read, action)
    choose({action}, one.verb,
      {actor = by.actor, reason = one.reason, said = is_unheld and UNHELD or one.said, time = by.time})
    if is_unheld then chosen[#chosen].verb = 'unapproved' end
    if one.verb == 'edit' then
      action.arguments, action.edited, action.edited_shown = one.arguments, one.edited, one.edited_shown
    end
  end
end

-- Delivers the decisions to a sandbox's agent when all are made. If the agent now takes one decision for all, but some
-- were decided singly before, it gets an approval only if every action has been approved as it was shown.
local function hand_over(open, stamp, together, delivery_id)
  for _, one in ipairs(chosen) do
    if one.verb == 'reject' then expect('reject ' .. one.action.id, delivery_id, now) end
  end
  append_edited_event(stamp)
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

if not open_log(stamp.id_prefix) then return false end
local state = redis.call('HMGET', root, 'sandbox_id', 'decision_id', 'delivery_id', 'told.capabilities')
local sandbox_id, capabilities = state[1] or '', state[4] or ''
if sandbox_id ~= sandbox then return false end

local function close(outcome, problems)
  local told = traced()
  return close_log(outcome, stamp.utc, problems or '', #told > 0 and cjson.encode(told) or '', outstanding())
end

if seq_of(minted_id(1), log.stored) then return close('won') end
if state[2] == stamp.id_prefix or state[3] == stamp.id_prefix then return close('won') end
if latest ~= '' and tonumber(now) > tonumber(latest) then return close('late') end
local open = log.status == 'waiting_for_confirmation' and open_actions() or {}
local waiting = undecided(open)
if #waiting > 0 and not may_decide then return close('forbidden') end
if #waiting > 0 and have_changed(rights) then return close('changed') end
if verb == 'overtake' and voter.voter ~= '' then redis.call('HSET', root, 'asker', voter.voter) end
if verb == 'overtake' and echo ~= '' then -- the message also rejects what the agent has not posted yet
  redis.call('HSET', root, 'sender', '{"actor":' .. cjson.encode(actor) .. ',"said":' .. cjson.encode(said) .. '}')
end
if echo ~= '' then
  local claim, token = string.match(echo, '^(.*) (%S+)$')
  expect(claim, token, now)
end

local by = {actor = actor, reason = reason, said = said, time = stamp.utc}
local together = sandbox_id ~= '' and not string.find(capabilities, '"decide_each"', 1, true)
local due, fresh = split_due(waiting, together)
local left, handed, rest = split_left(fresh)
if at_terminal then left = {} else fresh = rest end
if verb == 'each' then
  local given = cjson.decode(each)
  if is_outdated(read, approved_of(given, fresh)) then return close('unread') end
  local over = {expired = due, withdrawn = left, in_terminal = not at_terminal and handed or {}}
  local problems = problems_of(given, fresh, over, together, string.find(capabilities, '"edit"', 1, true))
  if #problems > 0 then return close('stale', cjson.encode(problems)) end
  choose_each(counted(given, fresh, by, together), fresh, by)
elseif verb == 'overtake' then
  due, fresh = {}, unreleased(open)
  choose(fresh, 'reject', by)
elseif verb == 'expire' then
  fresh = {}
elseif verb == 'approve' then
  if is_outdated(read, fresh) then return close('unread') end
  local given = {}
  for i, action in ipairs(fresh) do
    given[i] = {id = action.id, verb = verb, reason = reason, said = said, digest = '', since = ''}
  end
  local problems = problems_of(given, fresh, {}, together, false)
  if #problems > 0 then return close('stale', cjson.encode(problems)) end
  choose_each(counted(given, fresh, by, together), fresh, by)
else
  choose(fresh, verb, by)
end
if #waiting > 0 then
  choose(due, 'reject', expired(stamp.utc))
  choose(left, 'withdraw', withdrawal(stamp.utc))
end
local is_left = #waiting == 0 and verb ~= 'each' and #unreleased(open) > 0
if has_agreed then
  redis.call('HSET', root, 'decision_id', stamp.id_prefix)
  change_approvals()
  if #chosen == 0 then return close('agreed') end
end
if #chosen == 0 and not is_left then return close('nothing_pending') end

if #chosen > 0 then audit_chosen() else change_approvals() end
redis.call('HSET', root, 'decision_id', stamp.id_prefix)
local later = not_before(open, stamp)
if sandbox_id == '' then go_on(open, later) else hand_over(open, later, together, stamp.id_prefix) end
return close((#fresh > 0 or verb == 'expire') and 'won' or 'nothing_pending')
