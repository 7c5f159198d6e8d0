-- clear_start_task: record that a driver has removed everything that a failed start task had created.
-- If more may appear, the start task stays in the queue `failed`, and is cleaned up again.
-- KEYS  root of the start tasks
-- ARGV  id:text  late:int µs after its end in which more may appear; 0: none
-- Returns  flag: false if it must be cleaned up again
-- Cost  O(log s): s failed start tasks
-- Idempotent  a repeat finds it cleared
-- Kept  not proven: what is in the queue is cleaned up again
-- include: _start_task.lua
if now - (field(id, 'updated_at') or 0) < late then return 0 end
redis.call('ZREM', root .. ':failed', id)
return 1
