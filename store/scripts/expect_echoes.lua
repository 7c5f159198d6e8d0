-- expect_echoes: record claims that an agent may make, each once.
-- KEYS  root of the conversation
-- ARGV  at:micros now  token:text  claims:text*
-- Returns  int: number of claims | missing: no such conversation
-- Cost  O(c log e): c claims, e expected ones, at most 1,000
-- Idempotent  by token, until the claim is made
-- include: _echoes.lua
if redis.call('EXISTS', root) == 0 then return false end
for _, claim in ipairs(claims) do expect(claim, token, at) end
return #claims
