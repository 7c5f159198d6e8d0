-- _damage: detects a log with another number of events than the conversation counts.
-- Otherwise readers would read a page again forever, and appended events would get the seqs of lost ones.

-- Returns the error DAMAGED, with the number of events in Redis and the counted number; nil if they agree.
local function damage_of(root, counted)
  local found = redis.call('LLEN', root .. ':log')
  if counted and found ~= tonumber(counted) then
    return redis.error_reply('DAMAGED ' .. string.format('%d %d', found, counted))
  end
end
