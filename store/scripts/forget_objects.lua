-- forget_objects: remove objects, and the numbers of their pieces, from the register.
-- KEYS  root of the register
-- ARGV  names:text*
-- Returns  int: number of removed objects
-- Cost  O(n log m): n names, m objects
-- Idempotent  a repeat finds none
-- Kept  not proven: a lost step is repeated
redis.call('HDEL', root .. ':pieces', unpack(names))
return redis.call('ZREM', root .. ':objects', unpack(names))
