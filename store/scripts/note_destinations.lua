-- note_destinations: index entries of the audit of destinations, and tell the stream of the inbox and the outbox of them;
-- what was noted before is ignored.
-- KEYS  1 approvals root, {approvals}
-- ARGV  1 µs that an audit entry stays in the index   2 most entries of the stream
--       then of each entry, in their order: its place, as text that grows   its member of the index   its time in µs
--       kind of the change of the inbox ("" none)   conversation id ("" none)   digest   data of the change as JSON
--       its notice as JSON ("" none)
-- Returns  1
-- Cost  O(e log a): e entries given, a entries in the index
-- Idempotent  by the places
-- Full  goes on: the change that it indexes was taken
-- include: _clock.lua
-- include: _outbox.lua
local kept, most = ARGV[1], ARGV[2]
local noted, has_changed = redis.call('GET', root .. ':destinations') or '', false
for i = 3, #ARGV, 8 do
  local place, member, at, kind, conversation, digest, data, notice = unpack(ARGV, i, i + 7)
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
local old = redis.call('ZRANGEBYSCORE', root .. ':audit', '-inf', tonumber(now) - tonumber(kept), 'LIMIT', 0, 100)
if #old > 0 then redis.call('ZREM', root .. ':audit', unpack(old)) end
if has_changed then redis.call('PUBLISH', root .. ':signal', '') end
return 1
