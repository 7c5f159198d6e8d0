-- ask_sandbox: pause, resume or delete a sandbox, or have it yield its place, as `_sandbox.lua` has it; its supervisor brings it to the desired state.
-- A sandbox without a host, or of a lost host, is deleted at once. A deletion ends the hook key at once, and lists have the sandbox no longer. A sandbox of a
-- host that is lost cannot be resumed: that host has its files. A warm sandbox is bound by any of these.
-- KEYS  root of the sandboxes
-- ARGV  id:text  verb:text "pause", "rest", "yield", "resume" or "delete"  most:int sandboxes that may run
--       host_span:int age in µs at which a host's heartbeat counts as lost
--       trace:text W3C traceparent of a resume, "" none  used_at:micros last use that a yield has read
-- Returns  "done" | "refused"(status:text) | "full"(running:int) | "lost"(host:text) | missing: no such sandbox
-- Cost  O(1); of a yield, and of a resume where as many run or start as may, O(r): r of them
-- Idempotent  a repeat writes the same desired state
-- include: _room.lua
local status = field(id, 'status')
if not status then return false end
if verb == 'yield' and field(id, 'active_at') ~= used_at then return {'refused', 'in use'} end
bind(id)
local move = ASKED[verb][status]
if not move then return {'refused', status} end
if verb == 'delete' and is_adrift(id) then
  remove(id, 'kept')
  return 'done'
end
local wanted = field(id, 'wanted')
if wanted == move[1] and status == move[2] then return 'done' end
if wanted == 'deleted' then return {'refused', 'being deleted'} end
if verb == 'yield' and occupancy() < most then return 'done' end -- another one has made room
local host = field(id, 'host')
if verb == 'resume' and host ~= '' and (status == 'MISSING' or status == 'ERROR') then
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if not beat or tonumber(beat) < now - host_span then return {'lost', host} end
end
if verb == 'resume' then
  local room, number = make_room(most)
  if not room then return {'full', number} end
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
return 'done'
