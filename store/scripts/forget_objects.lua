-- forget_objects: take objects out of the register, and the numbers of their pieces.
-- KEYS  root of the register
-- ARGV  names:text*
-- Returns  int: how many were in it
-- Cost  O(n log m): n names, m objects
-- Idempotent  a repeat finds none
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
redis.call('HDEL', root .. ':pieces', unpack(names))
return redis.call('ZREM', root .. ':objects', unpack(names))
