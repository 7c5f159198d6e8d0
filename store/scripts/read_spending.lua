-- read_spending: what a sandbox has spent on models, what the sandboxes of its key have today, and all today, in UTC.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id
-- Returns  {its key, empty where it is nobody's; today, in days since 1970; then for each of the three: billionths of a
--          dollar, tokens, tokens without a price, the last model without one, and billionths and tokens that people have
--          allowed beyond its budget, each empty where there is none} | false: no such sandbox
-- Cost  O(1)
-- Idempotent  reads only
-- include: _spending.lua
if redis.call('EXISTS', root .. ':box:' .. ARGV[1]) == 0 then return false end
local owner = redis.call('HGET', root .. ':box:' .. ARGV[1], 'owner') or ''
local found = {owner, today}
local function add(key, suffix)
  local seen = redis.call('HMGET', root .. key, 'nanos' .. suffix, 'tokens' .. suffix, 'unpriced' .. suffix,
    'model' .. suffix, 'allowed_nanos' .. suffix, 'allowed_tokens' .. suffix)
  for at = 1, 6 do found[#found + 1] = seen[at] or '' end
end
add(':spent:' .. ARGV[1], '')
add(':spent_on:' .. today, ' ' .. owner)
add(':spent_on:' .. today, '')
return found
