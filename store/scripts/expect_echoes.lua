-- expect_echoes: note claims that an agent may make, each once.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 now, µs   then "CLAIM TOKEN" of each
-- Returns  number of claims given | false: no such conversation
-- Cost  O(c log e): c claims, e expected ones, at most 1,000
-- Idempotent  by token, until the claim is made
-- include: _echoes.lua
if redis.call('EXISTS', root) == 0 then return false end
for i = 2, #ARGV do
  local claim, token = string.match(ARGV[i], '^(.*) (%S+)$')
  expect(claim, token, ARGV[1])
end
return #ARGV - 1
