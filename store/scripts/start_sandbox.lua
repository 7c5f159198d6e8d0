-- start_sandbox: create the record of a sandbox, once per id; a supervisor claims it and starts it.
-- KEYS  root of the sandboxes
-- ARGV  id:text  spec:text its id  most:int sandboxes that may run  host_span:int age in µs at which a heartbeat counts as lost
--       most_stopped:int sandboxes that may be kept without running  files_key:text key of its files, sealed
--       source:json of its files  host:text "" any  gives_way:flag to others while it is idle
--       trace:text W3C traceparent, "" none  owner:text id of the key that starts it, "" nobody
--       start:text id of the start task that it is for, "" none
-- Returns  "started" "exists"(at:micros fields:hash) | "full"(running:int) | "kept"(stopped:int): as many do not run as may
--          | "no host" | "gone": it was removed, or that start task has ended
-- Cost  O(log s): s sandboxes; where as many run or start as may, O(r): r of them
-- Idempotent  by id
-- Brings  bytes
-- include: _room.lua
-- include: _new_sandbox.lua
if redis.call('EXISTS', root .. ':box:' .. id) == 1 then return {'exists', now, redis.call('HGETALL', root .. ':box:' .. id)} end
if redis.call('EXISTS', root .. ':ended:' .. id, root .. ':ended:' .. start) > 0 then return 'gone' end
if host == '' and redis.call('ZCOUNT', root .. ':hosts', now - host_span, '+inf') == 0 then return 'no host' end
if host ~= '' and tonumber(redis.call('ZSCORE', root .. ':hosts', host) or 0) < now - host_span then return 'no host' end
local stopped = 0
for _, status in ipairs({'PAUSED', 'ERROR', 'MISSING'}) do
  stopped = stopped + redis.call('ZCARD', root .. ':created:' .. status)
end
if stopped >= most_stopped then return {'kept', stopped} end
local room, number = make_room(most)
if not room then return {'full', number} end
add_sandbox(id, spec, host, files_key, source, gives_way and '1' or '', '', owner)
note_trace(id, trace)
return {'started', now, redis.call('HGETALL', root .. ':box:' .. id)}
