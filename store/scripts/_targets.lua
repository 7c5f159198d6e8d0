-- _targets: the lease of a target or a device whose oldest message is due.
-- include: _clock.lua

-- Returns the oldest message and the number of failed attempts; nothing if none is due, another has the lease, or the
-- target refuses further messages.
local function due_of(target, token, span)
  local holder, lease, due, disabled, tries, failed_at = unpack(redis.call('HMGET', root .. ':state:' .. target, 'token',
    'lease', 'next_at', 'disabled_at', 'tries', 'failed_at'))
  -- a failure in the future, and a lease that is too long, show that the clock stepped back
  if disabled or (due and tonumber(due) > tonumber(now) and tonumber(failed_at or 0) <= tonumber(now)) then return nil end
  local left = holder and holder ~= token and lease - now or 0
  if left > 0 and left <= span * 1000 then return nil end
  return redis.call('XRANGE', root .. ':queue:' .. target, '-', '+', 'COUNT', 1)[1], tonumber(tries or 0)
end

-- Takes the lease. Returns the message for Python.
local function lease_of(target, token, span, oldest, tries)
  redis.call('HSET', root .. ':state:' .. target, 'token', token, 'lease', string.format('%.0f', now + span * 1000))
  return oldest[1], oldest[2][2], oldest[2][4], now, string.format('%d', tries), oldest[2][6] or ''
end
