-- locate_event: return the position of an event in the order (time, seq).
-- KEYS  root of the conversation
-- ARGV  id:text
-- Returns  "found"(at:score seq:int) | "unknown" | missing: no such conversation
-- Cost  O(q): q (kind, source) pairs that occur
-- Idempotent  reads only
-- Log  needed
-- include: _pairs.lua
-- include: _ids.lua
local last = redis.call('HGET', root, 'seq')
if not last then return false end
local seq = seq_of(id, last)
if not seq then return 'unknown' end
local member = string.format('%010d', seq)
for _, pair in ipairs(matching_pairs('*', '*')) do
  local score = redis.call('ZSCORE', root .. ':at:' .. pair, member)
  if score then return {'found', score, member} end
end
return redis.error_reply('ERR event without an index entry')
