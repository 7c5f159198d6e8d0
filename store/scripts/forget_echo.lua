-- forget_echo: stop expecting a claim of an agent.
-- KEYS  root of the conversation
-- ARGV  claim:text  token:text
-- Returns  flag: false if it was not expected
-- Cost  O(log e): e expected claims
-- Idempotent  a repeat finds it gone
-- Full  goes on: it frees room
return redis.call('ZREM', root .. ':echoes', claim .. ' ' .. token)
