-- _presence: absence is not death (docs/durability.md). Needs `root` and `now`. Included by scripts that find something silent.
local APART = 5000000 -- µs between two signs of supervisors after which none was there, or the clock stepped

-- Notes that a supervisor is there. `queues` are sorted sets below the root whose scores are times, µs. Where the clock
-- stepped back, what is due by it is due as much earlier. Where none was there for a time, or the clock stepped forward, a
-- lease that had not ended before goes on, for so many µs (`lease`) at most: its driver may live. That is done once, lest
-- nothing is ever due where each round of the supervisors takes longer.
local function note_presence(queues, lease)
  local since, last = string.match(redis.call('GET', root .. ':present') or '', '^(%S+) (%S+)$')
  local gap = last and now - last or 0
  if last and gap >= 0 and gap < 1000000 then return end
  local lasted = since ~= last
  if not since or gap < 0 or gap > APART then since = now end
  redis.call('SET', root .. ':present', since .. ' ' .. now)
  for _, queue in ipairs(gap < 0 and queues or {}) do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. queue, '(' .. now, '+inf')) do
      redis.call('ZINCRBY', root .. queue, gap, id)
    end
  end
  for _, queue in ipairs(gap > APART and lasted and queues or {}) do
    local due = redis.call('ZRANGEBYSCORE', root .. queue, '(' .. last, now, 'WITHSCORES')
    for i = 1, #due, 2 do
      redis.call('ZADD', root .. queue, string.format('%.0f', now + math.min(due[i + 1] - last, lease)), due[i])
    end
  end
end

-- The time at which something that nobody has a lease of joins one of the queues: now, or the last sign of supervisors
-- where none is there, as a later time would be taken for the end of a lease.
local function joins_at()
  local last = string.match(redis.call('GET', root .. ':present') or '', ' (%S+)$')
  return last and now - last > APART and last or now
end

-- For how many µs supervisors have been there without a gap; 0: none is there now.
local function presence()
  local since, last = string.match(redis.call('GET', root .. ':present') or '', '^(%S+) (%S+)$')
  return since and math.abs(now - last) <= APART and now - since or 0
end
