-- _tried: for how long something has been tried without success.
-- include: _clock.lua
local APART_TRIES = 60000000 -- µs between two tries of which the time between them counts

-- In µs, as digits. known: what the last try noted, "µs before it, its time"; it is nil at the first one. A gap counts for
-- nothing: nobody tried, or the clock stepped (docs/durability.md).
local function tried_for(known)
  local before, last = string.match(known or '', '^(%S+) (%S+)$')
  local since = last and now - last or 0
  return string.format('%.0f', (before or 0) + (since >= 0 and since <= APART_TRIES and since or 0))
end
