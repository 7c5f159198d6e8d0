-- read_start_tasks: start tasks by id, as they are now that the forgotten ones have failed.
-- KEYS  1 root of the start tasks
-- ARGV  1 one whose lease ended longer ago than this, µs, is forgotten   2 the detail of its failure   then ids
-- Returns  {fields and values of each; none of an unknown one}
-- Cost  O(n): n ids, and the forgotten ones
-- Idempotent  a repeat finds the forgotten failed
-- include: _clock.lua
-- include: _start_task.lua
fail_the_forgotten(ARGV[1], ARGV[2])
local found = {}
for number = 3, #ARGV do found[#found + 1] = redis.call('HGETALL', root .. ':task:' .. ARGV[number]) end
return found
