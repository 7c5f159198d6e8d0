-- advance_start_task: write the progress of an unfinished start task, and renew its lease.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 lease id   3 length of the lease from now, µs   then name, value, … of fields
-- Returns  1 | 0: the lease is another driver's, or the start task is finished or gone
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat writes the same
-- include: _start_task.lua
local id, lease, span = unpack(ARGV)
if not is_driven(id, lease) then return 0 end
redis.call('ZADD', root .. ':due', now + span, id)
write(id, unpack(ARGV, 4))
return 1
