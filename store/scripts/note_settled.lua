-- note_settled: note that the conversations of a sandbox are settled with the agent server of its present start.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 number of the start
-- Returns  1 | false: no such sandbox
-- Cost  O(1)
-- Idempotent  a repeat finds the field set
local root = KEYS[1]
if redis.call('EXISTS', root .. ':box:' .. ARGV[1]) == 0 then return false end
redis.call('HSET', root .. ':box:' .. ARGV[1], 'settled', ARGV[2])
return 1
