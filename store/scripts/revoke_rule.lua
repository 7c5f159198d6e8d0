-- revoke_rule: delete an approval rule.
-- No claim of it is granted from now on. The list of ended rules keeps it.
-- KEYS  root of the rules
-- ARGV  id:text  request:text its id  by:json name of the revoker
-- Returns  flag: whether the rule existed
-- Cost  O(1)
-- Idempotent  by id of the request, for a day
-- include: _rules.lua
if redis.call('GET', root .. ':revoked:' .. id) == request then return 1 end
if redis.call('HEXISTS', root .. ':all', id) == 0 then return 0 end
forget(id, by)
redis.call('SET', root .. ':revoked:' .. id, request, 'PX', DAY)
note_change()
return 1
