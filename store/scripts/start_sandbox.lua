-- start_sandbox: create the record of a sandbox, once per id.
-- A supervisor claims it and starts it.
-- KEYS  root of the sandboxes
-- ARGV  id:text  spec:text its id  most:int maximum of running sandboxes
--       host_span:int age in µs at which a heartbeat is lost  most_stopped:int maximum of stopped sandboxes
--       files_key:text key of its files, sealed  source:json of its files  host:text "" any
--       gives_way:flag whether it may be paused for others while it is idle  trace:text W3C traceparent, "" none
--       owner:text id of the key that starts it, "" none  start:text id of its start task, "" none
-- Returns  "started" "exists"(at:micros fields:hash) | "full"(running:int)
--          | "kept"(stopped:int): the maximum is stopped | "no host"
--          | "gone": it was deleted, or that start task has ended
-- Cost  O(log s): s sandboxes, O(r) at the maximum: r running or starting sandboxes
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
