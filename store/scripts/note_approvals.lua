-- note_approvals: update the index of all approvals for a conversation.
-- A note of an older revision is ignored.
-- KEYS  root of the approvals
-- ARGV  conversation:text  revision:micros of its approvals
--       part:text "": the note is complete; "part": more audit entries follow, so the pending actions are not compared
--       yet; "gone": neither the conversation nor its audit exists; "due": complete, and its decisions must take effect
--       number:int entries of its audit
--       pending:(id:text at:micros expires:text item:bytes)[] when each began to wait, µs when due ("" never)
--       entries:(seq:digits at:micros kind:text ids:json notice:bytes entry:bytes)* further audit entries: kind is
--       "decided", "expired" or "changed" (an approval that is not the last one), ids are those of its actions
-- Returns  "noted" | "late"
-- Cost  O((p + e) log a): p pending actions of the conversation, e audit entries given, a pending actions in all
-- Idempotent  a repeat finds the entries indexed and the same actions pending, and writes nothing
-- Full  goes on: the change that it indexes is stored
-- include: _clock.lua
-- include: _outbox.lua

-- An item of the index is {seq, since, tool, risk, digest, expires, size, opened}: see `store/approvals/inbox.py`.
local MOST_CHANGES = 100000 -- entries of the stream
local has_changed = false -- whether the stream has changed

local function member_of(action) return conversation .. ' ' .. action end

local function notify(entry, notice, action, item)
  notice.id = 'msg_' .. string.gsub(entry, '-', '_')
  notice.conversation_id, notice.action_id, notice.tool, notice.risk = conversation, action, item.tool, item.risk
  push_outbox(root, notice)
end

-- Adds a change to the stream, and returns its id.
local function add_change(kind, action, item, ...)
  has_changed = true
  return redis.call('XADD', root .. ':stream', 'MAXLEN', '~', MOST_CHANGES, '*', 'kind', kind, 'conversation_id', conversation,
    'action_id', action, 'seq', string.format('%d', item.seq), 'since', item.since, 'risk', item.risk,
    'tool', type(item.tool) == 'string' and item.tool or '', 'size', string.format('%d', item.size), ...)
end

local function close(action)
  redis.call('ZREM', root .. ':waiting', member_of(action))
  redis.call('HDEL', root .. ':items', member_of(action))
  redis.call('SREM', root .. ':of:' .. conversation, action)
end

local function read_item(action)
  local stored = redis.call('HGET', root .. ':items', member_of(action))
  return stored and cjson.decode(stored)
end

local function open(action, at, item)
  local entry = add_change('opened', action, item)
  item.opened = entry
  redis.call('ZADD', root .. ':waiting', at, member_of(action))
  redis.call('HSET', root .. ':items', member_of(action), cjson.encode(item))
  redis.call('SADD', root .. ':of:' .. conversation, action)
  notify(entry, {type = 'action.pending', time = item.since}, action, item)
end
local noted = redis.call('HGET', root .. ':noted', conversation) or '0 0'
local known, audited = string.match(noted, '^(%S+) (%S+)$')
if tonumber(known) > tonumber(revision) then return 'late' end

if number < tonumber(audited) then audited = '0' end -- the audit has expired, and another one has begun
for seq, at, kind, ids, notice, entry in entries() do
  if tonumber(seq) > tonumber(audited) then
    audited = seq
    redis.call('ZADD', root .. ':audit', at, string.format('%s %010d', conversation, seq))
    for _, action in ipairs(cjson.decode(ids)) do
      local item = read_item(action)
      if item and kind == 'changed' then
        add_change(kind, action, item, 'entry', entry)
      elseif item then
        close(action)
        notify(add_change(kind, action, item, 'entry', entry), cjson.decode(notice), action, item)
      end
    end
  end
end

if part == 'part' then
  -- one less, so that older notes are late, and a sweep sees that the pending actions are not compared yet
  known = string.format('%.0f', math.max(tonumber(known), tonumber(revision) - 1))
else
  known = revision
  local waits, first = {}, part == 'due' and now or nil
  for action, at, expires, written in pending() do
    local item, listed = cjson.decode(written), read_item(action)
    waits[action] = true
    if expires ~= '' and (not first or tonumber(expires) < tonumber(first)) then first = expires end
    if listed and (listed.seq ~= item.seq or listed.since ~= item.since) then -- from an earlier incarnation
      add_change('closed', action, listed)
      listed = nil
    end
    if listed then
      item.opened = listed.opened
      redis.call('HSET', root .. ':items', member_of(action), cjson.encode(item))
    else
      open(action, at, item)
    end
  end
  for _, action in ipairs(redis.call('SMEMBERS', root .. ':of:' .. conversation)) do
    if not waits[action] then
      add_change('closed', action, read_item(action))
      close(action)
    end
  end
  if first then
    redis.call('ZADD', root .. ':due', first, conversation)
  else
    redis.call('ZREM', root .. ':due', conversation)
  end
end

if part == 'gone' then
  redis.call('HDEL', root .. ':noted', conversation)
  redis.call('ZREM', root .. ':checks', conversation)
else
  redis.call('HSET', root .. ':noted', conversation, known .. ' ' .. audited)
  redis.call('ZADD', root .. ':checks', now, conversation)
end
if has_changed then redis.call('PUBLISH', root .. ':signal', '') end
return 'noted'
