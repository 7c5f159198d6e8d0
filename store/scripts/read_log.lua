-- read_log: the events after a seq, as many as fit.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 seq to read after   2 most events   3 bytes that end the page: the event that reaches them is its last
-- Returns  {incarnation, seq of the last event of the log, event as kept, …} | false: no such conversation
--          | the error COLD, where events that it needs are in an object
--          | the error DAMAGED, where the log has not as many events as the conversation counts
-- Cost  O(n' + m): n' list nodes between that seq and the nearer end of the log, m events read
-- Idempotent  reads only
-- Log  guarded here
-- include: _frame.lua
-- include: _damage.lua
local STRIDE = 16
local state = redis.call('HMGET', root, 'incarnation', 'seq', 'cold')
if not state[1] then return false end
local reply, size = {state[1], tonumber(state[2])}, 0
local at, stop = tonumber(ARGV[1]), math.min(tonumber(ARGV[1]) + tonumber(ARGV[2]), tonumber(state[2]))
if at < stop and state[3] then return redis.error_reply('COLD ' .. state[3]) end
local damage = not state[3] and damage_of(root, state[2])
if damage then return damage end
while at < stop and size < tonumber(ARGV[3]) do
  for _, bytes in ipairs(redis.call('LRANGE', root .. ':log', at, math.min(at + STRIDE, stop) - 1)) do
    if size >= tonumber(ARGV[3]) then break end
    reply[#reply + 1] = bytes
    size = size + size_of(bytes)
  end
  at = at + STRIDE
end
return reply
