-- finish_start_task: end a start task as READY or ERROR, which is final.
-- Deletes its secrets and its body.
-- KEYS  root of the start tasks
-- ARGV  id:text  lease:text its id  status:text "READY" or "ERROR"  detail:text
-- Returns  flag: false if another driver has the lease, or the start task is gone, or finished with the other status
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat is 1 and changes nothing
-- include: _start_task.lua
if field(id, 'lease') ~= lease then return 0 end
local present = field(id, 'status')
if FINISHED[present] then return present == status and 1 or 0 end
finish(id, status, detail)
return 1
