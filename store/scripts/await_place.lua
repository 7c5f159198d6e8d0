-- await_place: have a start task wait for the place of a sandbox, behind those that were created before it. The first of
-- them is due again soon, each other one when it has waited as long as it may.
-- KEYS  1 root of the start tasks
-- ARGV  1 id   2 lease id   3 µs until the first one is tried again   4 most µs that a start task waits   5 detail
-- Returns  "waits" | "over": it has waited as long as it may | false: the lease is another driver's, or the start task is
--          finished or gone
-- Cost  O(log s): s unfinished start tasks
-- Idempotent  a repeat waits on, from the same time
-- include: _start_task.lua
local id, lease, again, most, detail = unpack(ARGV)
if not is_driven(id, lease) then return false end
local present = tonumber(now)
local since = math.min(tonumber(field(id, 'waiting_at')) or present, present) -- the clock may have stepped back
local left = since + tonumber(most) - present
if left <= 0 then return 'over' end
redis.call('ZADD', root .. ':waiting', field(id, 'created_at'), id)
local is_first = redis.call('ZRANGE', root .. ':waiting', 0, 0)[1] == id
write(id, 'waiting_at', string.format('%d', since), 'detail', detail)
redis.call('ZADD', root .. ':due', now + (is_first and math.min(tonumber(again), left) or left), id)
return 'waits'
