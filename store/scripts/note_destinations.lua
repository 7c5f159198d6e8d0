-- note_destinations: index entries of the audit of destinations, and tell the stream of the inbox and the outbox of them;
-- what was noted before is ignored.
-- KEYS  root of the approvals
-- ARGV  most:int entries of the stream
--       entries:(place:text member:text at:micros kind:text conversation:text digest:text data:json notice:json)* in their
--       order: the place, as text that grows; its member of the index; its time; kind of the change of the inbox ("" none);
--       conversation id ("" none); data of the change; its notice ("" none)
-- Returns  missing
-- Cost  O(e log a): e entries given, a entries in the index
-- Idempotent  by the places
-- Full  goes on: the change that it indexes was taken
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
