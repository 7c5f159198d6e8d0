-- _rehearsals: the rehearsals that run in the background.
-- A rehearsal is a hash. While it runs its id is in a sorted set, whose score is when the lease of its runner ends, µs.
-- include: _clock.lua
local function rehearsal_key(id)
  return root .. ':rehearsal:' .. id
end

-- Those whose runner is at work.
local function at_work()
  return redis.call('ZCOUNT', root .. ':rehearsals', '(' .. now, '+inf')
end

-- lease: ms.
local function take_lease(id, lease)
  redis.call('ZADD', root .. ':rehearsals', string.format('%.0f', now + lease * 1000), id)
end
