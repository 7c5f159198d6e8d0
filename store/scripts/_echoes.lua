-- _echoes: the expected claims of a sandbox's agent in a conversation; see `store/approvals/effects.py`.
-- `root` is the conversation's. A member of conv:{id}:echoes is "CLAIM TOKEN", with one token per request that expects
-- it.
local MOST_ECHOES = 1000

-- Expects a claim from now on. Beyond MOST_ECHOES the oldest are dropped.
local function expect(claim, token, score)
  redis.call('ZADD', root .. ':echoes', score, claim .. ' ' .. token)
  redis.call('ZREMRANGEBYRANK', root .. ':echoes', 0, -1 - MOST_ECHOES)
end
