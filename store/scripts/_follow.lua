-- _follow: what follows a change of a conversation, where its caller names the keys, as one server has them all: the
-- script that makes the change also lists it and indexes what waits, so that neither lags behind, whatever ends the
-- caller. In a cluster, and where a rule or the mode may decide what waits, the caller does what is left: `store/projections.py`.
-- act: the script. note_conversation, read_unindexed, note_approvals: those scripts, each a function of KEYS and ARGV.
-- KEYS: the root of the conversation, and those of the listing, of the approvals and of their rules.
-- include: _time.lua
local reply = act()
if type(reply) ~= 'table' or reply.err or not KEYS[2] then return reply end
local revision, status, created_at, updated_at, groups, title, is_behind = unpack(reply, 2, 8)
local conversation, listing, approvals, rules = unpack(KEYS)
local id = string.match(conversation, '{(.-)}')

-- Whether the listing has the state: a conversation of an earlier release has no folded title.
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

-- Whether the index is up to date: not where so much is new that a later call goes on.
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

-- A full Redis refuses a write where the script itself wrote nothing: the caller's own scripts go on there.
local is_done, is_listed = pcall(list)
if is_done and is_listed then reply[9] = '1' end
if is_behind == '1' and not (status == 'waiting_for_confirmation' and may_be_decided()) then
  local is_read, is_indexed = pcall(index)
  if is_read and is_indexed then reply[8] = '' end
end
return reply
