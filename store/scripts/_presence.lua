-- _presence: absence is not death (docs/durability.md).
-- Needs `root` and `now`. Included by scripts that detect silence.
local APART = 5000000 -- µs between two signs of supervisors that mean absence or a step of the clock

-- Records that a supervisor is present. `queues` are sorted sets below the root whose scores are times, µs. If the
-- clock stepped back, their times are moved back. If no supervisor was present for a while, or the clock stepped
-- forward, leases that had not ended before are prolonged by at most `lease` µs, because their drivers may live. This
-- is done once per gap, so that entries become due even if each round of the supervisors takes longer.
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

-- Returns the time at which an entry without a lease joins a queue: now, or the last sign of supervisors if none is
-- present, because a later time would count as the end of a lease.
local function joins_at()
  local last = string.match(redis.call('GET', root .. ':present') or '', ' (%S+)$')
  return last and now - last > APART and last or now
end

-- Returns the µs for which supervisors have been present without a gap; 0: none is.
local function presence()
  local since, last = string.match(redis.call('GET', root .. ':present') or '', '^(%S+) (%S+)$')
  return since and math.abs(now - last) <= APART and now - since or 0
end
