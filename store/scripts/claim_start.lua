-- claim_start: take the lease of an unfinished start that nobody drives.
-- KEYS  1 root of the starts
-- ARGV  1 lease id, one per claim   2 now, µs   3 end of the lease, µs
-- Returns  its id | false: there is none
-- Cost  O(log s): s unfinished starts
-- Idempotent  no: a repeat claims another one; the first is claimed again when its lease ends
local root = KEYS[1]
local id = redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', ARGV[2], 'LIMIT', 0, 1)[1]
if not id then return false end
redis.call('ZADD', root .. ':due', ARGV[3], id)
redis.call('HSET', root .. ':task:' .. id, 'lease', ARGV[1])
return id
