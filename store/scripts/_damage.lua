-- _damage: whether Redis has every event that a conversation counts. Else a page would be read again without end, and
-- appended events would get the seqs of lost ones.

-- The error DAMAGED, with the number of events in Redis and the one that the conversation counts; nil where they agree.
local function damage_of(root, counted)
  local found = redis.call('LLEN', root .. ':log')
  if counted and found ~= tonumber(counted) then
    return redis.error_reply('DAMAGED ' .. string.format('%d %d', found, counted))
  end
end
