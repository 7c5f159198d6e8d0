-- count_hit: count one more hit within a window, which begins with its first hit.
-- KEYS  1 the counter
-- ARGV  1 number of hits   2 length of the window, ms
-- Returns  number of hits in the window
-- Cost  O(1)
-- Idempotent  no: a repeat after a timeout counts twice, which errs on the side of the bound
local root = KEYS[1]
local hits = redis.call('INCRBY', root, ARGV[1])
if hits == tonumber(ARGV[1]) then redis.call('PEXPIRE', root, ARGV[2]) end
return hits
