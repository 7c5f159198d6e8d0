-- revoke_destination_rule: delete a rule for a destination.
-- It decides no connection that is requested after this.
-- KEYS  root of the sandboxes
-- ARGV  id:text  time:text now, UTC with Z  kept:int ms for which a day's audit is kept  actor:json canonical
--       request:text its id
-- Returns  flag: whether the rule existed
-- Cost  O(1)
-- Idempotent  by id of the request, for a day
-- include: _sha256.lua
-- include: _destinations.lua
if redis.call('GET', root .. ':revoked:' .. id) == request then return 1 end
local known = redis.call('HGET', root .. ':destination_rules', id)
if not known then return 0 end
local rule = cjson.decode(known)
redis.call('HDEL', root .. ':destination_named', rule.name .. ':' .. rule.port)
redis.call('HDEL', root .. ':destination_rules', id)
redis.call('HDEL', root .. ':destination_uses', id)
redis.call('SET', root .. ':revoked:' .. id, request, 'EX', 86400)
audit({time = time, kept = kept}, 'rule_revoked', actor, {name = rule.name, port = rule.port, rule = id,
  reason = '"' .. rule.decision .. '"'})
return 1
