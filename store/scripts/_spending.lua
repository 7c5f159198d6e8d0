-- _spending: the day by which spending is counted.
-- `today`: days since 1970, in UTC, by Redis' clock. Spending is billionths of a dollar, tokens, tokens without a
-- price, the last model without a price ("" none), and amounts that people have approved beyond the budget.
-- Shape  spent(nanos:int tokens:int unpriced:int model:text allowed_nanos:int allowed_tokens:int)
-- include: _clock.lua
local today = string.format('%d', math.floor(tonumber(now) / 86400000000))
