-- _idempotency: the records of a client's Idempotency-Keys.
-- A record is claimed while it has a lease (µs), and may be claimed again afterwards; `finished` is final.
-- include: _clock.lua

local function after(span) return string.format('%.0f', now + span) end

-- Keeps a record for span µs from now.
local function keep(key, span)
  redis.call('PEXPIRE', root .. ':key:' .. key, string.format('%.0f', span / 1000))
  redis.call('ZADD', root .. ':live', after(span), key)
  redis.call('PEXPIRE', root .. ':live', string.format('%.0f', span / 1000))
end
