-- read_log: return a page of the events after a seq.
-- KEYS  root of the conversation
-- ARGV  seq:int to read after  most:int events  most_bytes:int after which the page ends
-- Returns  (incarnation:text last:int events:bytes*): the last seq of the log, and the events as stored
--          | missing: no such conversation | error COLD: required events are in cold storage
--          | error DAMAGED: the log has another number of events than the conversation counts
-- Cost  O(n' + m): n' list nodes from the nearer end of the log, m events read
-- Idempotent  reads only
-- Log  guarded here
-- include: _frame.lua
-- include: _damage.lua
local STRIDE = 16
local state = redis.call('HMGET', root, 'incarnation', 'seq', 'cold')
if not state[1] then return false end
local reply, size = {state[1], tonumber(state[2])}, 0
local at, stop = seq, math.min(seq + most, tonumber(state[2]))
if at < stop and state[3] then return redis.error_reply('COLD ' .. state[3]) end
local damage = not state[3] and damage_of(root, state[2])
if damage then return damage end
while at < stop and size < most_bytes do
  for _, bytes in ipairs(redis.call('LRANGE', root .. ':log', at, math.min(at + STRIDE, stop) - 1)) do
    if size >= most_bytes then break end
    reply[#reply + 1] = bytes
    size = size + size_of(bytes)
  end
  at = at + STRIDE
end
return reply
