-- renew_start_task: renew the lease of an unfinished start task. A finished start task stays finished.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 lease id   3 length of the lease from now, µs
-- Returns  1 | 0: the lease is another driver's, or the start task is finished or gone
-- Cost  O(log s): s unfinished start tasks
-- Idempotent  a repeat prolongs it a little more
-- include: _clock.lua
-- include: _start_task.lua
local id, lease, span = unpack(ARGV)
if not is_driven(id, lease) then return 0 end
redis.call('ZADD', root .. ':due', now + span, id)
return 1
