-- renew_mask: have the events of a conversation masked by what its sandbox has by now: another conversation there has other secrets.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 version of the secrets, one per request
-- Returns  1 | false: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds the field set
local root = KEYS[1]
if redis.call('EXISTS', root) == 0 then return false end
redis.call('HSET', root, 'secrets_version', ARGV[1])
return 1
