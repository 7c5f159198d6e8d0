-- forget_objects: take objects out of the register.
-- KEYS  1 root of the register
-- ARGV  names
-- Returns  the number of those that were in it
-- Cost  O(n log m): n names, m objects
-- Idempotent  a repeat finds none
local root = KEYS[1]
return redis.call('ZREM', root .. ':objects', unpack(ARGV))
