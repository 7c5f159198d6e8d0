-- finish_start_task: end a start task as READY or ERROR, which is final. Its secrets and its body go at once.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 lease id   3 "READY" | "ERROR"   4 detail
-- Returns  1 | 0: the lease is another driver's, or the start task is gone, or finished with the other status
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat is 1 and changes nothing
-- include: _start_task.lua
local id, lease, status, detail = unpack(ARGV)
if field(id, 'lease') ~= lease then return 0 end
local present = field(id, 'status')
if FINISHED[present] then return present == status and 1 or 0 end
finish(id, status, detail)
return 1
