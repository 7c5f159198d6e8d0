-- read_list_changes: the ids of a list that have changed after a number, in the order of their newest changes.
-- KEYS  1 root of the list, conversations:{all} or {sandboxes}
-- ARGV  1 number to read after   2 most ids
-- Returns  {ids that the set of changes holds, number after which it holds all, number of the last change, id, number, …};
--          three zeros where it is empty
-- Cost  O(log n + m): n ids that it holds, m ids read
-- Idempotent  reads only
local last = redis.call('ZRANGE', root .. ':changes', -1, -1, 'WITHSCORES')[2]
local reply = {redis.call('ZCARD', root .. ':changes'), redis.call('GET', root .. ':changes:floor') or '0', last or '0'}
local found = redis.call('ZRANGEBYSCORE', root .. ':changes', '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #found do reply[i + 3] = found[i] end
return reply
