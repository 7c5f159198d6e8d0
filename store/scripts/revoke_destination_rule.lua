-- revoke_destination_rule: forget a rule for a destination: it decides no connection that is asked for after this.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id
-- Returns  1 | 0: no such rule
-- Cost  O(1)
-- Idempotent  a repeat finds it gone
-- Log  none
-- Kept  proven
local root = KEYS[1]
local known = redis.call('HGET', root .. ':destination_rules', ARGV[1])
if not known then return 0 end
local rule = cjson.decode(known)
redis.call('HDEL', root .. ':destination_named', rule.name .. ':' .. rule.port)
redis.call('HDEL', root .. ':destination_rules', ARGV[1])
redis.call('HDEL', root .. ':destination_uses', ARGV[1])
return 1
