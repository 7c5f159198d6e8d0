-- _echoes: what the agent of a conversation in a sandbox is expected to claim; see `store/approvals/effects.py`. `root` is the
-- conversation's. A member of conv:{id}:echoes is "CLAIM TOKEN"; the token is one per request that expects it.
local MOST_ECHOES = 1000

-- Expects a claim from now on; the oldest of too many are forgotten.
local function expect(claim, token, score)
  redis.call('ZADD', root .. ':echoes', score, claim .. ' ' .. token)
  redis.call('ZREMRANGEBYRANK', root .. ':echoes', 0, -1 - MOST_ECHOES)
end
