-- _frame: the stored form of events: original bytes, or Zstandard frames.
-- See `store/log/frames.py`.

-- Returns the original size of an event. The header of a frame contains it, by RFC 8878, 3.1.1.1.4.
local function size_of(kept)
  if string.byte(kept) ~= 0x28 then return #kept end
  local form, a, b, c, d = string.byte(kept, 5), string.byte(kept, 7, 10)
  if form < 0x40 then return a end
  if form < 0x80 then return 256 + a + 256 * b end
  return a + 256 * b + 65536 * c + 16777216 * d
end
