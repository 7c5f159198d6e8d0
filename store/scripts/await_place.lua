-- await_place: queue a start task for the place of a sandbox, by time of creation.
-- The first is due again soon, the others when they have waited for their maximum.
-- KEYS  root of the start tasks
-- ARGV  id:text  lease:text its id  again:int µs until the first one is retried
--       most:int µs that a start task waits at most  detail:text
-- Returns  "waits" | "over": it has waited for its maximum
--          | missing: another driver has the lease, or the start task is finished or gone
-- Cost  O(log s): s unfinished start tasks
-- Idempotent  a repeat keeps the time since which it waits
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
