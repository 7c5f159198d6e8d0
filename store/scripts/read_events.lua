-- read_events: events by seq, as many as fit into a page.
-- Events that lie close in the log are read as one range, of so few that a page of the longest events stays bounded.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 most bytes of a page: the first event that exceeds them is returned too, and is the last one   2… seqs
-- Returns  {bytes, …} of the first seqs, in their order | false: no such conversation, or no such event
-- Cost  O(m n'): m events, n' list nodes between them and the nearer end of the log
-- Idempotent  reads only
local root = KEYS[1]
local STRIDE, SPAN = 16, 32
local most, events, size = tonumber(ARGV[1]), {}, 0

-- The events of the seqs from ARGV[first] to ARGV[last], by seq.
local function events_of(first, last)
  local lowest, highest = math.huge, 0
  for i = first, last do
    lowest, highest = math.min(lowest, tonumber(ARGV[i])), math.max(highest, tonumber(ARGV[i]))
  end
  local found = {}
  if highest - lowest < SPAN then
    for offset, bytes in ipairs(redis.call('LRANGE', root .. ':log', lowest - 1, highest - 1)) do
      found[lowest + offset - 1] = bytes
    end
  else
    for i = first, last do
      local seq = tonumber(ARGV[i])
      found[seq] = redis.call('LINDEX', root .. ':log', seq - 1) or nil
    end
  end
  return found
end

for first = 2, #ARGV, STRIDE do
  local last = math.min(first + STRIDE - 1, #ARGV)
  local found = events_of(first, last)
  for i = first, last do
    local bytes = found[tonumber(ARGV[i])]
    if not bytes then return false end
    events[#events + 1] = bytes
    size = size + #bytes
    if size > most then return events end
  end
end
return events
