-- _clock: the clock of Redis, which decides for all callers instead of the clocks of hosts and clients.
-- `now`: µs since 1970 as digits.
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])
