-- _freeze: whether a conversation may become cold, and what is moved then. `root` is KEYS[1].

-- Nothing runs, nothing waits, no decision is on its way, and the log is here. Actions that a run left open stay open.
local function rests(status, cold, delivery)
  return status ~= 'running' and status ~= 'waiting_for_confirmation' and not cold and not delivery
end

-- The keys of a log, as they follow the root: every script that names one is guarded, see `__init__.py`.
local function moved_parts()
  local parts = {':log', ':seqs', ':ids', ':peaks'}
  for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do parts[#parts + 1] = ':at:' .. pair end
  return parts
end

-- Those, and the keys of the text, of which a cold conversation keeps a frame.
local function all_parts(last_chunk)
  local parts = moved_parts()
  for number = 0, tonumber(last_chunk) do parts[#parts + 1] = ':text:' .. string.format('%d', number) end
  return parts
end
