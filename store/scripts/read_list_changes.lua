-- read_list_changes: return the ids of a list that have changed after a number, in the order of their newest changes.
-- KEYS  root of the list
-- ARGV  number:int to read after  most:int ids
-- Returns  (size:int floor:score last:score changes:(id:text number:score)*): number of stored ids, number after which
--          none is missing, and number of the last change; zeros if there are none
-- Cost  O(log n + m): n stored ids, m read ones
-- Idempotent  reads only
local last = redis.call('ZRANGE', root .. ':changes', -1, -1, 'WITHSCORES')[2]
local reply = {redis.call('ZCARD', root .. ':changes'), redis.call('GET', root .. ':changes:floor') or '0', last or '0'}
local found = redis.call('ZRANGEBYSCORE', root .. ':changes', '(' .. string.format('%d', number), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #found do reply[i + 3] = found[i] end
return reply
