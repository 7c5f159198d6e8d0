-- count_events: return the number of events that pass a filter.
-- The cost does not depend on the log's length.
-- KEYS  root of the conversation
-- ARGV  filter:event_filter
-- Returns  int | missing: no such conversation | error COLD: it has a filter, and the log is in cold storage
-- Cost  O(q log n): q (kind, source) pairs that occur, typically under 15; n events of the conversation
-- Idempotent  reads only
-- Log  guarded here
-- include: _pairs.lua
local seq = redis.call('HGET', root, 'seq')
if not seq then return false end
local is_open = filter.lowest == '-inf' and filter.highest == '+inf'
if is_open and filter.kind == '*' and filter.source == '*' then return tonumber(seq) end

local total = 0
for _, pair in ipairs(matching_pairs(filter.kind, filter.source)) do
  total = total + redis.call('ZCOUNT', root .. ':at:' .. pair, filter.lowest, filter.highest)
end
local cold = total == 0 and redis.call('HGET', root, 'cold') -- its sorted sets are not in Redis
if cold then return redis.error_reply('COLD ' .. cold) end
return total
