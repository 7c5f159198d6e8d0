-- note_destinations: index audit entries of destinations, and publish them to the stream of the inbox and the outbox.
-- Entries that were noted before are ignored.
-- KEYS  root of the approvals
-- ARGV  most:int entries of the stream
--       entries:(place:text member:text at:micros kind:text conversation:text digest:text data:json notice:json)* in
--       order: ascending id; member of the index; time; kind of the inbox' change ("" none); conversation id ("" none);
--       data of the change; notification ("" none)
-- Returns  missing
-- Cost  O(e log a): e entries given, a entries in the index
-- Idempotent  by the ids
-- Full  goes on: the change that it indexes is stored
-- include: _outbox.lua
local noted, has_changed = redis.call('GET', root .. ':destinations') or '', false
for place, member, at, kind, conversation, digest, data, notice in entries() do
  if place > noted then
    noted = place
    redis.call('ZADD', root .. ':audit', at, member)
    if kind ~= '' then
      has_changed = true
      local id = redis.call('XADD', root .. ':stream', 'MAXLEN', '~', most, '*', 'kind', kind, 'conversation_id',
        conversation, 'action_id', digest, 'seq', '0', 'since', '', 'risk', '', 'tool', '', 'size', '0', 'entry', data)
      if notice ~= '' then
        local told = cjson.decode(notice)
        told.id = 'msg_' .. string.gsub(id, '-', '_')
        push_outbox(root, told)
      end
    end
  end
end
redis.call('SET', root .. ':destinations', noted)
if has_changed then redis.call('PUBLISH', root .. ':signal', '') end
