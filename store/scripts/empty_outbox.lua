-- empty_outbox: remove queued entries from an outbox.
-- If an entry is not the oldest, another supervisor has queued it, or it was dropped.
-- KEYS  the outbox
-- ARGV  entries:bytes* the oldest first
-- Returns  int: number of removed entries
-- Cost  O(n): n entries given
-- Idempotent  a repeat finds other entries
local number = 0
for _, entry in ipairs(entries) do
  if redis.call('LINDEX', root, 0) == entry then
    redis.call('LPOP', root)
    number = number + 1
  end
end
return number
