-- read_spending: return the spending of a sandbox on models, and today's of its key's sandboxes and of all, in UTC.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text
-- Returns  (owner:text today:int conversation:spent key:spent day:spent): its key, "" none; days since 1970
--          | missing: no such sandbox
-- Cost  O(1)
-- Idempotent  reads only
-- include: _spending.lua
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return false end
local owner = redis.call('HGET', root .. ':box:' .. sandbox, 'owner') or ''
local found = {owner, today}
local function add(key, suffix)
  local seen = redis.call('HMGET', root .. key, 'nanos' .. suffix, 'tokens' .. suffix, 'unpriced' .. suffix,
    'model' .. suffix, 'allowed_nanos' .. suffix, 'allowed_tokens' .. suffix)
  for at = 1, 6 do found[#found + 1] = seen[at] or at == 4 and '' or '0' end
end
add(':spent:' .. sandbox, '')
add(':spent_on:' .. today, ' ' .. owner)
add(':spent_on:' .. today, '')
return found
