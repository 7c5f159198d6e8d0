-- read_start_tasks: return start tasks by id, after those without a supervisor have failed.
-- KEYS  root of the start tasks
-- ARGV  span:int µs after the end of a lease at which its start task fails  detail:text of that failure  ids:text*
-- Returns  hash*: an unknown one is empty
-- Cost  O(n): n ids, and the ones that fail
-- Idempotent  a repeat finds them failed
-- Kept  not proven: the next read does it again
-- include: _start_task.lua
fail_orphans(span, detail)
local found = {}
for i, id in ipairs(ids) do found[i] = redis.call('HGETALL', root .. ':task:' .. id) end
return found
