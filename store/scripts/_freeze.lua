-- _freeze: whether a conversation may become cold, and the keys that are moved then.
-- `root` is KEYS[1].

-- Returns whether it is idle: no run, no pending action, no delivery, and a log in Redis. Open actions may stay open.
local function rests(status, cold, delivery)
  return status ~= 'running' and status ~= 'waiting_for_confirmation' and not cold and not delivery
end

-- Returns the suffixes of a log's keys. Every script that names such a key is guarded, see `__init__.py`.
local function moved_parts()
  local parts = {':log', ':seqs', ':ids', ':peaks'}
  for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do parts[#parts + 1] = ':at:' .. pair end
  return parts
end

-- Returns these suffixes and those of the text, which a cold conversation keeps as frames.
local function all_parts(last_chunk)
  local parts = moved_parts()
  for number = 0, tonumber(last_chunk) do parts[#parts + 1] = ':text:' .. string.format('%d', number) end
  return parts
end
