-- read_unindexed: return what the index of all approvals may lack of a conversation, as arguments of `note_approvals`.
-- KEYS  root of the conversation
-- ARGV  after:int number of indexed audit entries  most:int audit entries to return
-- Returns  (part:text revision:micros audited:int pending:(id:text at:micros expires:text item:bytes)[]
--          entries:(seq:digits at:micros kind:text ids:json notice:bytes entry:bytes)[]): the arguments of those names
-- Cost  O(p log p + e): p open actions, e entries
-- Idempotent  reads only
-- Log  not guarded: open actions stay in Redis
-- include: _actions.lua
-- include: _asked.lua
-- include: _time.lua

-- Returns the value of a JSON text. cjson refuses lone surrogates: then each surrogate of the text becomes a question
-- mark.
local function read_json(text)
  local is_read, value = pcall(cjson.decode, '[' .. text .. ']')
  if is_read then return value[1] end
  return cjson.decode('[' .. string.gsub(text, '\\(.)(%x?%x?%x?%x?)', function(letter, digits)
    if letter == 'u' and string.find(digits, '^[dD][89a-fA-F]') then return '?' end
  end) .. ']')[1]
end

local state, audited = redis.call('HMGET', root, 'execution_status', 'approvals'), redis.call('LLEN', root .. ':audit')
if audited < after then after = 0 end -- the audit of an earlier incarnation has expired, and another one has begun

local entries = {}
local stored = redis.call('LRANGE', root .. ':audit', after, after + most - 1)
for _, text in ipairs(stored) do
  local entry = read_json(text)
  local kind = entry.decision == 'agree' and 'changed' or entry.actor.kind == 'expiry' and 'expired' or 'decided'
  local notice = cjson.encode({type = 'action.' .. kind, time = entry.time, decision = entry.decision,
    actor = {kind = entry.actor.kind, name = entry.actor.name}, detail = entry.reason})
  for _, word in ipairs({string.format('%d', entry.seq), micros_of(entry.time), kind, cjson.encode(entry.action_ids), notice, text}) do entries[#entries + 1] = word end
end

local open = state[1] == 'waiting_for_confirmation' and open_actions() or {}
local pending, waiting = {}, undecided(open)
for _, action in ipairs(waiting) do
  local item = cjson.encode({seq = action.seq, since = action.since, tool = read_json(action.tool), risk = action.risk,
    digest = action.digest, expires = action.expires or '', size = action.size or 0})
  for _, word in ipairs({action.id, micros_of(action.since), due_of(action) or '', item}) do
    pending[#pending + 1] = word
  end
end

local part = ''
if #stored == most then
  part = 'part'
elseif not state[1] and audited == 0 then
  part = 'gone'
elseif #waiting == 0 and #unreleased(open) > 0 then
  part = 'due'
end
return {part, state[2] or now, audited, pending, entries}
