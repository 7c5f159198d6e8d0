-- _spending: the day by which spending is counted.
-- `today`: days since 1970, in UTC, by Redis' clock.
-- include: _clock.lua
local today = string.format('%d', math.floor(tonumber(now) / 86400000000))
