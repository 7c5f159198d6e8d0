-- _freeze: whether a conversation may be moved to cold storage, and which keys are moved.
-- `root` is KEYS[1].

-- Returns whether a conversation is idle: no run, no pending action, no delivery, and a log in Redis. It may have open
-- actions.
local function rests(status, cold, delivery)
  return status ~= 'running' and status ~= 'waiting_for_confirmation' and not cold and not delivery
end

-- Returns the suffixes of a log's keys. Every script that uses such a key declares its guard: `Log` in `__init__.py`.
local function moved_parts()
  local parts = {':log', ':seqs', ':ids', ':peaks'}
  for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do parts[#parts + 1] = ':at:' .. pair end
  return parts
end

-- Returns the suffixes of a log's keys and of its text chunks. Cold storage has the text chunks as frames.
local function all_parts(last_chunk)
  local parts = moved_parts()
  for number = 0, tonumber(last_chunk) do parts[#parts + 1] = ':text:' .. string.format('%d', number) end
  return parts
end
