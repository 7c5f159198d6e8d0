-- _clock: the clock of Redis, one for all callers: the clocks of hosts and clients decide nothing.
-- `now`: µs since 1970 as digits.
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])
