-- _index: the index of one conversation's pending actions. Needs `root`, `conversation`, `most` entries of the stream, and
-- _outbox. An item is {seq, since, tool, risk, digest, expires, size, opened}: see `store/approvals/inbox.py`.
local has_changed = false -- whether the stream has got an entry

local function member_of(action) return conversation .. ' ' .. action end

local function notify(entry, notice, action, item)
  notice.id = 'msg_' .. string.gsub(entry, '-', '_')
  notice.conversation_id, notice.action_id, notice.tool, notice.risk = conversation, action, item.tool, item.risk
  push_outbox(root, notice)
end

-- Adds a change to the stream; returns its id there.
local function tell(kind, action, item, ...)
  has_changed = true
  return redis.call('XADD', root .. ':stream', 'MAXLEN', '~', most, '*', 'kind', kind, 'conversation_id', conversation,
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
  local entry = tell('opened', action, item)
  item.opened = entry
  redis.call('ZADD', root .. ':waiting', at, member_of(action))
  redis.call('HSET', root .. ':items', member_of(action), cjson.encode(item))
  redis.call('SADD', root .. ':of:' .. conversation, action)
  notify(entry, {type = 'action.pending', time = item.since}, action, item)
end
