-- _tried: the time for which something has been tried without success.
-- include: _clock.lua
local APART_TRIES = 60000000 -- maximum µs between two attempts that counts

-- Returns it in µs, as digits. known: note of the last attempt, "µs before it, its time"; nil at the first one. A gap
-- does not count, because nobody tried, or the clock stepped (docs/durability.md).
local function tried_for(known)
  local before, last = string.match(known or '', '^(%S+) (%S+)$')
  local since = last and now - last or 0
  return string.format('%.0f', (before or 0) + (since >= 0 and since <= APART_TRIES and since or 0))
end
