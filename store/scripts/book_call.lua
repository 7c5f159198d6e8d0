-- book_call: count what a call of a model has used: of its sandbox while that is, of its key and of all today, and by model.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 its key ("" nobody's)   3 model, of a bounded set   4 seconds for which a day is kept
--       5 last model without a price ("" it has one)   then pairs: field, number to add
-- Returns  nothing
-- Cost  O(f): f fields
-- Idempotent  a repeat counts twice
-- Kept  not proven: it counts what has happened
-- include: _spending.lua
local sandbox, owner, model, kept, unpriced = unpack(ARGV)

local function count(key, suffix)
  for at = 6, #ARGV, 2 do
    if ARGV[at + 1] ~= '0' then redis.call('HINCRBY', root .. key, ARGV[at] .. suffix, ARGV[at + 1]) end
  end
  if unpriced ~= '' then redis.call('HSET', root .. key, 'model' .. suffix, unpriced) end
end

count(':spent_on:' .. today, '')
count(':spent_on:' .. today, ' ' .. owner)
redis.call('EXPIRE', root .. ':spent_on:' .. today, kept)
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 1 then count(':spent:' .. sandbox, '') end
for at = 6, #ARGV, 2 do
  if ARGV[at + 1] ~= '0' then redis.call('HINCRBY', root .. ':models', model .. ' ' .. ARGV[at], ARGV[at + 1]) end
end
return false
