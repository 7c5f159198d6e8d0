-- forget_start_task: remove a start task in any status. A repeat of the request that made it makes no other.
-- KEYS  root of the start tasks
-- ARGV  id:text  late:int seconds for which a repeat of that request may come
-- Returns  missing
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat finds nothing
-- include: _start_task.lua
forget(id)
redis.call('SET', root .. ':ended:' .. id, '', 'EX', late)
