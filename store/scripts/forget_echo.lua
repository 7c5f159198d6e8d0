-- forget_echo: expect a claim of an agent no longer.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 "CLAIM TOKEN"
-- Returns  1 | 0: it was not expected
-- Cost  O(log e): e expected claims
-- Idempotent  a repeat finds it forgotten
-- Full  goes on: it frees room
return redis.call('ZREM', root .. ':echoes', ARGV[1])
