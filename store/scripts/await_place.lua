-- await_place: have a start task wait for the place of a sandbox, behind those that were created before it. The first of
-- them is due again soon, each other one when it has waited as long as it may.
-- KEYS  root of the start tasks
-- ARGV  id:text  lease:text its id  again:int µs until the first one is tried again
--       most:int µs that a start task waits  detail:text
-- Returns  "waits" | "over": it has waited as long as it may | missing: the lease is another driver's, or the start task is
--          finished or gone
-- Cost  O(log s): s unfinished start tasks
-- Idempotent  a repeat waits on, from the same time
-- include: _start_task.lua
if not is_driven(id, lease) then return false end
local present = tonumber(now)
local since = math.min(tonumber(field(id, 'waiting_at')) or present, present) -- the clock may have stepped back
local left = since + most - present
if left <= 0 then return 'over' end
redis.call('ZADD', root .. ':waiting', field(id, 'created_at'), id)
local is_first = redis.call('ZRANGE', root .. ':waiting', 0, 0)[1] == id
write(id, 'waiting_at', string.format('%d', since), 'detail', detail)
redis.call('ZADD', root .. ':due', now + (is_first and math.min(again, left) or left), id)
return 'waits'
