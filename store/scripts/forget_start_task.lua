-- forget_start_task: remove a start task in any status. A repeat of the request that made it makes no other.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 seconds for which a repeat of that request may come
-- Returns  1
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat finds nothing
-- include: _start_task.lua
forget(ARGV[1])
redis.call('SET', root .. ':ended:' .. ARGV[1], '', 'EX', ARGV[2])
return 1
