-- count_events: the number of events that pass a filter. Its cost does not grow with the log.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 kind, escaped, or "*"   2 source, escaped, or "*"
--       3 lowest time, µs, or "-inf"   4 highest time, "(" µs (exclusive), or "+inf"
-- Returns  the number | false: no such conversation | the error COLD: it has a filter, and the log lies in an object
-- Cost  O(q log n): q (kind, source) pairs that occur, typically under 15; n events of the conversation
-- Idempotent  reads only
-- Log  guarded here
-- include: _pairs.lua
local seq = redis.call('HGET', root, 'seq')
if not seq then return false end
local kind, source, lowest, highest = unpack(ARGV)
if kind == '*' and source == '*' and lowest == '-inf' and highest == '+inf' then return tonumber(seq) end

local total = 0
for _, pair in ipairs(matching_pairs(kind, source)) do
  total = total + redis.call('ZCOUNT', root .. ':at:' .. pair, lowest, highest)
end
local cold = total == 0 and redis.call('HGET', root, 'cold') -- whose sorted sets are not here: none has an event
if cold then return redis.error_reply('COLD ' .. cold) end
return total
