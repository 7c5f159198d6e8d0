-- count_hit: count one more hit within a window, which begins with its first hit.
-- KEYS  the counter
-- ARGV  number:int of hits  window:int its length, ms
-- Returns  int: hits in the window
-- Cost  O(1)
-- Idempotent  no: a repeat after a timeout counts twice, which errs on the side of the bound
-- Kept  not proven: a hit is counted in passing

-- Redis ends a key by the time of day: more than a window is left of one where the clock stepped back.
if redis.call('PTTL', root) > window then redis.call('DEL', root) end
local hits = redis.call('INCRBY', root, number)
if hits == number then redis.call('PEXPIRE', root, window) end
return hits
