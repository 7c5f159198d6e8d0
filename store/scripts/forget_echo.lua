-- forget_echo: expect a claim of an agent no longer.
-- KEYS  root of the conversation
-- ARGV  claim:text  token:text
-- Returns  flag: false where it was not expected
-- Cost  O(log e): e expected claims
-- Idempotent  a repeat finds it forgotten
-- Full  goes on: it frees room
return redis.call('ZREM', root .. ':echoes', claim .. ' ' .. token)
