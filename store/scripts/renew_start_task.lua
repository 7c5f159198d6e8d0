-- renew_start_task: renew the lease of an unfinished start task.
-- A finished start task stays finished.
-- KEYS  root of the start tasks
-- ARGV  id:text  lease:text its id  span:int µs of the lease from now
--       counter:text field to increment, "attempts" or "waits"; "" none
-- Returns  flag: false if another driver has the lease, or the start task is finished or gone
-- Cost  O(log s): s unfinished start tasks
-- Idempotent  a repeat prolongs it a bit more, and counts again
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _start_task.lua
if not is_driven(id, lease) then return 0 end
if counter ~= '' then redis.call('HINCRBY', root .. ':task:' .. id, counter, 1) end
redis.call('ZADD', root .. ':due', now + span, id)
return 1
