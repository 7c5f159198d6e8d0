-- revoke_rule: forget an approval rule: from now on no claim of it is granted. The record of ended rules keeps it.
-- KEYS  root of the rules
-- ARGV  id:text  request:text its id  by:json name of who revokes
-- Returns  flag: whether there is such a rule
-- Cost  O(1)
-- Idempotent  by id of the request, for a day
-- include: _rules.lua
if redis.call('GET', root .. ':revoked:' .. id) == request then return 1 end
if redis.call('HEXISTS', root .. ':all', id) == 0 then return 0 end
forget(id, by)
redis.call('SET', root .. ':revoked:' .. id, request, 'PX', DAY)
note_change()
return 1
