-- revoke_rule: forget an approval rule: from now on no claim of it is granted.
-- KEYS  1 root of the rules
-- ARGV  1 id   2 id of the request
-- Returns  1 | 0: there is no such rule
-- Cost  O(1)
-- Idempotent  by id of the request, for a day
-- include: _rules.lua
if redis.call('GET', root .. ':revoked:' .. ARGV[1]) == ARGV[2] then return 1 end
if redis.call('HEXISTS', root .. ':all', ARGV[1]) == 0 then return 0 end
forget(ARGV[1])
redis.call('SET', root .. ':revoked:' .. ARGV[1], ARGV[2], 'PX', DAY)
note_change()
return 1
