-- clear_start_task: note that a driver has removed all that a failed start task had made. Where more may come of it, the
-- start task stays in the queue `failed`, and is cleared again.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 µs after its end in which more may come (0: none)
-- Returns  1 | 0: it is to be cleared again
-- Cost  O(log s): s failed start tasks
-- Idempotent  a repeat finds it cleared
-- Kept  not proven: what is in the queue is cleared again
-- include: _start_task.lua
local id, span = unpack(ARGV)
if now - (field(id, 'updated_at') or 0) < tonumber(span) then return 0 end
redis.call('ZREM', root .. ':failed', id)
return 1
