-- _read: events by seq that fit into a page.
-- `root` is KEYS[1]. Neighbours in the log are read as one range, because each range costs a walk to its position in
-- the list. The first range is short, and a longer one follows only short events.
-- include: _frame.lua
local STRIDE, LONG_STRIDE, SHORT_BYTES = 16, 128, 64 * 1024

-- Returns the first of `seqs` as stored, in order, up to and including the first event that exceeds `most` bytes
-- together; false if an event is missing.
local function events_of(seqs, most)
  local events, size, first, stride = {}, 0, 1, STRIDE
  while first <= #seqs do
    local last = math.min(first + stride - 1, #seqs)
    local lowest, highest = seqs[first], seqs[first]
    for i = first + 1, last do
      local seq = seqs[i]
      if seq < lowest then lowest = seq elseif seq > highest then highest = seq end
    end
    local near = highest - lowest < 2 * stride and redis.call('LRANGE', root .. ':log', lowest - 1, highest - 1)
    for i = first, last do
      local bytes
      if near then bytes = near[seqs[i] - lowest + 1] else bytes = redis.call('LINDEX', root .. ':log', seqs[i] - 1) end
      if not bytes then return false end
      events[#events + 1] = bytes
      size = size + size_of(bytes)
      if size > most then return events end
    end
    first, stride = last + 1, size < SHORT_BYTES and LONG_STRIDE or STRIDE
  end
  return events
end
