-- empty_outbox: take entries out of an outbox that were queued. An entry that is not the oldest by then is another
-- supervisor's, or was dropped.
-- KEYS  the outbox
-- ARGV  entries:bytes* the oldest first
-- Returns  int: entries that were taken out
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
