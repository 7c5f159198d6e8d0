-- clear_start_task: note that a driver has removed all that a failed start task had made. Where more may come of it, the
-- start task stays in the queue `failed`, and is cleared again.
-- KEYS  root of the start tasks
-- ARGV  id:text  late:int µs after its end in which more may come; 0: none
-- Returns  flag: false where it is to be cleared again
-- Cost  O(log s): s failed start tasks
-- Idempotent  a repeat finds it cleared
-- Kept  not proven: what is in the queue is cleared again
-- include: _start_task.lua
if now - (field(id, 'updated_at') or 0) < late then return 0 end
redis.call('ZREM', root .. ':failed', id)
return 1
