-- advance_start_task: write the progress of an unfinished start task, and renew its lease.
-- KEYS  root of the start tasks
-- ARGV  id:text  lease:text its id  span:int µs of the lease from now  fields:map*
-- Returns  flag: false if another driver has the lease, or the start task is finished or gone
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat writes the same
-- include: _start_task.lua
if not is_driven(id, lease) then return 0 end
redis.call('ZADD', root .. ':due', now + span, id)
write(id, unpack(fields))
return 1
