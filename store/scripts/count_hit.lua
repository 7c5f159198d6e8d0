-- count_hit: count one more hit within a window, which begins with its first hit.
-- KEYS  1 the counter
-- ARGV  1 number of hits   2 length of the window, ms
-- Returns  number of hits in the window
-- Cost  O(1)
-- Idempotent  no: a repeat after a timeout counts twice, which errs on the side of the bound
-- Kept  not proven: a hit is counted in passing

-- Redis ends a key by the time of day: more than a window is left of one where the clock stepped back.
if redis.call('PTTL', root) > tonumber(ARGV[2]) then redis.call('DEL', root) end
local hits = redis.call('INCRBY', root, ARGV[1])
if hits == tonumber(ARGV[1]) then redis.call('PEXPIRE', root, ARGV[2]) end
return hits
