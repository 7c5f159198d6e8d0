-- forget_start_task: remove a start task in any status.
-- KEYS  1 root of the start tasks
-- ARGV  1 id
-- Returns  1
-- Cost  O(log s): s start tasks
-- Idempotent  a repeat finds nothing
-- Log  none
-- Kept  proven
-- include: _clock.lua
-- include: _start_task.lua
forget(ARGV[1])
return 1
