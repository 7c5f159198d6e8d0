-- leave_place_queue: record that a start task has found a place.
-- The next one in the queue is due at once.
-- KEYS  root of the start tasks
-- ARGV  id:text  lease:text its id
-- Returns  flag: false if another driver has the lease, or the start task is finished or gone
-- Cost  O(log s): s unfinished start tasks
-- Idempotent  a repeat finds it removed from the queue
-- include: _start_task.lua
if not is_driven(id, lease) then return 0 end
leave_queue(id)
write(id, 'detail', '')
return 1
