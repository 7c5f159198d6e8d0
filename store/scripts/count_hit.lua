-- count_hit: count a hit in a window, which begins with its first hit.
-- KEYS  the counter
-- ARGV  number:int of hits  window:int ms
-- Returns  int: hits in the window
-- Cost  O(1)
-- Idempotent  no: a repeat after a timeout counts twice, which is on the safe side
-- Kept  not proven: a lost hit does no harm

-- Redis expires keys by the time of day: more time is left than a window if the clock stepped back.
if redis.call('PTTL', root) > window then redis.call('DEL', root) end
local hits = redis.call('INCRBY', root, number)
if hits == number then redis.call('PEXPIRE', root, window) end
return hits
