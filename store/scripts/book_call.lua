-- book_call: count the usage of a model's call: for its sandbox, for its key and for all today, and by model.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  owner:text its key; "" none  model:text of a limited set
--       kept:int seconds for which a day is kept  unpriced:text last model without a price; "" it has one
--       numbers:(field:text number:digits)* to add
-- Returns  missing
-- Cost  O(f): f fields
-- Idempotent  a repeat counts twice
-- Kept  not proven: it only counts
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
