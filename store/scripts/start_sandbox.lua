-- start_sandbox: create the record of a sandbox, once per id; a supervisor claims it and starts it.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 spec id   3 most that may run   4 a heartbeat that is older, µs, is lost
--       5 most that may be kept without running   6 key of its files, sealed   7 source of its files, JSON   8 host ("" any)
--       9 "1": it gives way to others while it is idle   10 W3C traceparent ("" none)
--       11 id of the key that starts it ("" nobody)   12 id of the start task that it is for ("" none)
-- Returns  {"started" | "exists", now, µs, its fields and values} | {"full", number that run} | {"kept", number that do not}
--          | {"no host"} | {"gone"}: it was removed, or that start task has ended
-- Cost  O(log s): s sandboxes; where as many run or start as may, O(r): r of them
-- Idempotent  by id
-- Brings  bytes
-- include: _room.lua
-- include: _new_sandbox.lua
local id, spec, cap, host_span, most_stopped, files_key, source, host, gives_way, trace, owner, start = unpack(ARGV)
if redis.call('EXISTS', root .. ':box:' .. id) == 1 then return {'exists', now, redis.call('HGETALL', root .. ':box:' .. id)} end
if redis.call('EXISTS', root .. ':ended:' .. id, root .. ':ended:' .. start) > 0 then return {'gone'} end
if host == '' and redis.call('ZCOUNT', root .. ':hosts', now - host_span, '+inf') == 0 then return {'no host'} end
if host ~= '' and tonumber(redis.call('ZSCORE', root .. ':hosts', host) or 0) < now - host_span then return {'no host'} end
local stopped = 0
for _, status in ipairs({'PAUSED', 'ERROR', 'MISSING'}) do
  stopped = stopped + redis.call('ZCARD', root .. ':created:' .. status)
end
if stopped >= tonumber(most_stopped) then return {'kept', stopped} end
local room, number = make_room(tonumber(cap))
if not room then return {'full', number} end
add_sandbox(id, spec, host, files_key, source, gives_way, '', owner)
note_trace(id, trace)
return {'started', now, redis.call('HGETALL', root .. ':box:' .. id)}
