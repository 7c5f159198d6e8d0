-- plan_freeze: return what a freeze of a conversation must move.
-- KEYS  root of the conversation
-- ARGV  none
-- Returns  (at:micros incarnation:text revision:text bytes:int chunks:int parts:text*): now, size of the log in Redis,
--          number of its text chunks, and suffix of each key, those of the text chunks last
--          | missing: no such conversation, or it is busy, or its log has lost events
-- Cost  O(q + t): q (kind, source) pairs that occur, t text chunks
-- Idempotent  reads only
-- Log  guarded here
-- include: _clock.lua
-- include: _freeze.lua
-- include: _damage.lua
local state = redis.call(
  'HMGET', root, 'incarnation', 'revision', 'text_chunk', 'execution_status', 'cold', 'delivery_id', 'seq')
if not state[1] or not rests(state[4], state[5], state[6]) or damage_of(root, state[7]) then return false end
local parts, bytes = all_parts(state[3]), 0
for _, part in ipairs(parts) do
  local size = redis.pcall('MEMORY', 'USAGE', root .. part) -- fakeredis lacks the command
  if type(size) == 'number' then bytes = bytes + size end
end
return {now, state[1], state[2], string.format('%.0f', bytes), string.format('%d', state[3] + 1), unpack(parts)}
