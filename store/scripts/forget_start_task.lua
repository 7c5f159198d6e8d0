-- forget_start_task: delete a start task in any status.
-- A repeat of its request creates no other.
-- KEYS  root of the start tasks
-- ARGV  id:text  late:int maximum delay of a repeat of that request, in seconds
-- Returns  missing
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat finds nothing
-- include: _start_task.lua
forget(id)
redis.call('SET', root .. ':ended:' .. id, '', 'EX', late)
