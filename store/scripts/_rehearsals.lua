-- _rehearsals: the rehearsals that run in the background.
-- A rehearsal is a hash. While it runs its id is in a sorted set, whose score is the end of its runner's lease, µs.
-- include: _clock.lua
local function rehearsal_key(id)
  return root .. ':rehearsal:' .. id
end

-- Returns the number of rehearsals with a live runner.
local function at_work()
  return redis.call('ZCOUNT', root .. ':rehearsals', '(' .. now, '+inf')
end

-- Takes the lease of a runner, in ms.
local function take_lease(id, lease)
  redis.call('ZADD', root .. ':rehearsals', string.format('%.0f', now + lease * 1000), id)
end
