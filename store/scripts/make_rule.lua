-- make_rule: store an approval rule, once per id.
-- Without room, expired rules are deleted first.
-- KEYS  root of the rules
-- ARGV  id:text  rule:json an object, without `created_at`  expires_at:micros? absent: never
--       max_uses:digits? absent: unlimited  most:int rules
-- Returns  "made"(rule:json) | "full" | "past": it would already have expired | "revoked": the one with that id
-- Cost  O(1), without room O(r): r rules
-- Idempotent  by id, also for a day after the rule was revoked
-- Brings  bytes
-- include: _rules.lua
local known = redis.call('HGET', root .. ':all', id)
if known then return {'made', known} end
if redis.call('EXISTS', root .. ':revoked:' .. id) == 1 then return 'revoked' end
local use = {uses = '0', last_used_at = '', expires_at = expires_at, max_uses = max_uses}
if has_expired(use) then return 'past' end
if redis.call('HLEN', root .. ':all') >= most then
  for _, other in ipairs(redis.call('HKEYS', root .. ':all')) do
    if has_expired(use_of(other)) then forget(other, '""') end
  end
  if redis.call('HLEN', root .. ':all') >= most then return 'full' end
end
local made = '{"created_at":' .. now .. ',' .. string.sub(rule, 2)
redis.call('HSET', root .. ':all', id, made)
set_use(id, use)
note_change()
return {'made', made}
