-- advance_start: write what a driver has reached, and prolong its lease; a driver that has lost its lease writes nothing.
-- KEYS  1 root of the starts
-- ARGV  1 id   2 lease id   3 now, µs   4 end of the lease, µs ("" it is finished)   then name, value, … of fields
-- Returns  1 | 0: the lease is another's, or the start is gone
-- Cost  O(log s): s unfinished starts
-- Idempotent  a repeat writes the same; finished again is 1
local root = KEYS[1]
local id, lease, now, lease_end = unpack(ARGV)
if redis.call('HGET', root .. ':task:' .. id, 'lease') ~= lease then return 0 end
if lease_end == '' then redis.call('ZREM', root .. ':due', id)
else redis.call('ZADD', root .. ':due', lease_end, id) end
if #ARGV > 4 then
  redis.call('HSET', root .. ':task:' .. id, 'updated_at', now, unpack(ARGV, 5))
  redis.call('ZADD', root .. ':updated', now, id)
end
return 1
