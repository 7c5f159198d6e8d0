-- ask_sandbox: pause, resume or delete a sandbox, or have it yield its place, as `_sandbox.lua` has it; its supervisor brings it to the desired state.
-- A sandbox without a host, or of a lost host, is deleted at once. A deletion ends the hook key at once, and lists have the sandbox no longer. A sandbox of a
-- host that is lost cannot be resumed: that host has its files. A warm sandbox is bound by any of these.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 "pause" | "rest" | "yield" | "resume" | "delete"   3 most that may run
--       4 a heartbeat that is older, µs, is lost   5 W3C traceparent of a resume ("" none)
--       6 of a yield: its last use as the caller has read it, µs
-- Returns  {"done" | "refused" | "full", its status, number that run} | {"lost", its host, 0} | false: no such sandbox
-- Cost  O(1); of a yield, and of a resume where as many run or start as may, O(r): r of them
-- Idempotent  a repeat writes the same desired state
-- include: _room.lua
local id, verb, cap, host_span, trace, used_at = unpack(ARGV)
local status = field(id, 'status')
if not status then return false end
if verb == 'yield' and field(id, 'active_at') ~= used_at then return {'refused', 'in use', 0} end
bind(id)
local move = ASKED[verb][status]
if not move then return {'refused', status, 0} end
if verb == 'delete' and is_adrift(id) then
  remove(id, 'kept')
  return {'done', 'MISSING', 0}
end
local wanted = field(id, 'wanted')
if wanted == move[1] and status == move[2] then return {'done', status, 0} end
if wanted == 'deleted' then return {'refused', 'being deleted', 0} end
if verb == 'yield' and occupancy() < tonumber(cap) then return {'done', status, 0} end -- another one has made room
local host = field(id, 'host')
if verb == 'resume' and host ~= '' and (status == 'MISSING' or status == 'ERROR') then
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if not beat or tonumber(beat) < now - host_span then return {'lost', host, 0} end
end
if verb == 'resume' then
  local room, number = make_room(tonumber(cap))
  if not room then return {'full', status, number} end
  redis.call('HSET', root .. ':box:' .. id, 'active_at', now, 'starting_at', now, 'start_after', '0', 'detail', '')
  note_trace(id, trace)
  note_change(id)
  if host == '' then redis.call('ZADD', root .. ':unclaimed', now, id) end
elseif verb == 'delete' then
  close_keys(id)
  leave(id)
end
redis.call('HSET', root .. ':box:' .. id, 'wanted', move[1])
set_status(id, move[2])
signal(id)
return {'done', move[2], 0}
