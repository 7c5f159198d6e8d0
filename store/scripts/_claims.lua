-- _claims: what a batch of a sandbox claims of people (see `store/approvals/claims.py`), and the actions that its agent resumed
-- without a decision of this server. Needs _log, _audit, _actions, _batch.
local WAITING = 'waiting_for_confirmation'
local expected -- nil until an event of the batch claims something; claim → its members of conv:{id}:echoes
local spent, unowned, resumed = {}, {}, {}

-- Whether a claim is expected: each expected echo bears out one.
local function is_owned(claim)
  if claim == 'policy ' .. log.held then return true end
  if not expected then
    expected = {}
    for _, member in ipairs(redis.call('ZRANGE', root .. ':echoes', 0, -1)) do
      local of = string.match(member, '^(.*) %S+$')
      expected[of] = expected[of] or {}
      table.insert(expected[of], member)
    end
  end
  local member = expected[claim] and table.remove(expected[claim], 1)
  if member then spent[#spent + 1] = member end
  return member ~= nil
end

local function forget_spent()
  for _, member in ipairs(spent) do redis.call('ZREM', root .. ':echoes', member) end
end

-- The agent closes an action by itself, without a decision taken here.
local function note_closed(id)
  read_open()
  local action = open.by_id[id]
  if log.status == WAITING and action and not action.decided then resumed[#resumed + 1] = action end
end

-- The agent sets a status: if it waits no longer, what waited is resumed. In a sandbox it can no longer be decided.
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

-- Audits the resumed actions. by: who posts, as canonical JSON. time: UTC text with Z.
local function audit_resumed(by, time)
  if #resumed == 0 then return end
  write_audit('unapproved', resumed, by, '"The agent went on without a decision."', time)
  change_approvals()
end

-- Appends an event that names the resumed actions. Returns their ids as a JSON list, '' for none.
local function say_resumed(stamp, before)
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
