-- read_start_tasks: start tasks by id, after those without a supervisor have failed.
-- KEYS  1 root of the start tasks
-- ARGV  1 µs after the end of a lease after which its start task fails   2 detail of that failure   then ids
-- Returns  {fields and values of each; none of an unknown one}
-- Cost  O(n): n ids, and the forgotten ones
-- Idempotent  a repeat finds them failed
-- Kept  not proven: what a read finds lost, the next one finds again
-- include: _start_task.lua
fail_the_forgotten(ARGV[1], ARGV[2])
local found = {}
for number = 3, #ARGV do found[#found + 1] = redis.call('HGETALL', root .. ':task:' .. ARGV[number]) end
return found
