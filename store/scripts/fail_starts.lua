-- fail_starts: end the starts that no supervisor drives any more; one that comes again clears away what they left.
-- KEYS  1 root of the starts
-- ARGV  1 a lease that ended before this, µs, is forgotten   2 now, µs   3 what clients are told
-- Returns  how many have failed
-- Cost  O(s): s unfinished starts
-- Idempotent  a failed one does not fail again
local root = KEYS[1]
local failed = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', ARGV[1])) do
  local status = redis.call('HGET', root .. ':task:' .. id, 'status')
  if status and status ~= 'READY' and status ~= 'ERROR' then
    redis.call('HSET', root .. ':task:' .. id, 'status', 'ERROR', 'detail', ARGV[3], 'updated_at', ARGV[2])
    redis.call('ZADD', root .. ':updated', ARGV[2], id)
    failed = failed + 1
  end
end
return failed
