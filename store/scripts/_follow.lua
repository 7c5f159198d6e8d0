-- _follow: updates what depends on a conversation after a change, if its caller names the keys, as it does if one
-- server has all of them. The script that changes a conversation then also lists it and indexes its pending actions, so
-- that neither lags behind if the caller is killed. In a cluster, and if a rule or the mode may decide pending actions,
-- the caller does the rest: `store/projections.py`. act: the script. note_conversation, read_unindexed, note_approvals:
-- those scripts, as functions of KEYS and ARGV. KEYS: the roots of the conversation, of the listing, of the approvals
-- and of their rules.
-- include: _time.lua
local reply = act()
if type(reply) ~= 'table' or reply.err or not KEYS[2] then return reply end
local revision, status, created_at, updated_at, groups, title, is_behind = unpack(reply, 2, 8)
local conversation, listing, approvals, rules = unpack(KEYS)
local id = string.match(conversation, '{(.-)}')

-- Lists the state. Returns whether it is listed: a conversation of an earlier release has no folded title.
local function list()
  local folded = redis.call('HGET', conversation, 'folded_title')
  if not folded then
    if title ~= 'null' then return false end
    folded = ''
  end
  note_conversation({listing},
    {id, string.format('%.0f', revision), status, micros_of(created_at), micros_of(updated_at), groups, folded})
  return true
end

-- Updates the index. Returns whether it is up to date: with too many changes, a later call continues.
local function index()
  for _ = 1, 10 do
    local noted = redis.call('HGET', approvals .. ':noted', id) or '0 0'
    local part, changed, audited, pending, entries =
      unpack(read_unindexed({conversation}, {string.match(noted, ' (%d+)$'), '100'}))
    local given = {id, changed, part, audited, #pending / 4}
    for _, word in ipairs(pending) do given[#given + 1] = word end
    for _, word in ipairs(entries) do given[#given + 1] = word end
    note_approvals({approvals}, given)
    if part ~= 'part' then return true end
  end
  return false
end

local function may_be_decided()
  return redis.call('EXISTS', rules .. ':all') == 1 or redis.call('HGET', conversation, 'approves_inside') == 'true'
end

-- If the script wrote nothing, a full Redis refuses these writes. The caller's own scripts go on there.
local is_done, is_listed = pcall(list)
if is_done and is_listed then reply[9] = '1' end
if is_behind == '1' and not (status == 'waiting_for_confirmation' and may_be_decided()) then
  local is_read, is_indexed = pcall(index)
  if is_read and is_indexed then reply[8] = '' end
end
return reply
