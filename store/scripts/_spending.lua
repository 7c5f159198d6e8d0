-- _spending: the day by which spending is counted. Included after _clock.lua.
-- `today`: days since 1970, in UTC, by Redis' clock.
local today = string.format('%d', math.floor(tonumber(now) / 86400000000))
