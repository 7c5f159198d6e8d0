-- book_call: count what a call of a model has used: of its sandbox while that is, of its key and of all today, and by model.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  owner:text its key; "" nobody's  model:text of a bounded set  kept:int seconds for which a day is kept
--       unpriced:text last model without a price; "" it has one  numbers:(field:text number:digits)* to add
-- Returns  missing
-- Cost  O(f): f fields
-- Idempotent  a repeat counts twice
-- Kept  not proven: it counts what has happened
-- include: _spending.lua

local function count(key, suffix)
  for field, number in numbers() do
    if number ~= '0' then redis.call('HINCRBY', root .. key, field .. suffix, number) end
  end
  if unpriced ~= '' then redis.call('HSET', root .. key, 'model' .. suffix, unpriced) end
end

count(':spent_on:' .. today, '')
count(':spent_on:' .. today, ' ' .. owner)
redis.call('EXPIRE', root .. ':spent_on:' .. today, kept)
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 1 then count(':spent:' .. sandbox, '') end
for field, number in numbers() do
  if number ~= '0' then redis.call('HINCRBY', root .. ':models', model .. ' ' .. field, number) end
end
