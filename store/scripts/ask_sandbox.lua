-- ask_sandbox: pause, resume or delete a sandbox, by writing its desired state. `_sandbox.lua` defines the moves.
-- Its supervisor then brings the sandbox to that state. "rest" pauses a sandbox that has used up a limit, and "yield"
-- pauses an idle one to make room for another.
-- A deletion revokes the hook key at once, and lists omit the sandbox. A sandbox without a host, or of a lost host, is
-- removed at once. A sandbox of a lost host cannot be resumed, because that host has its files. Every verb takes a warm
-- sandbox out of its pool.
-- KEYS  root of the sandboxes
-- ARGV  id:text  verb:text "pause", "rest", "yield", "resume" or "delete"  most:int maximum of running sandboxes
--       host_span:int age in µs at which a heartbeat is lost  trace:text W3C traceparent of a resume, "" none
--       used_at:micros "yield": last use; refused if it has changed
-- Returns  "done" | "refused"(status:text) | "full"(running:int) | "lost"(host:text) | missing: no such sandbox
-- Cost  O(1); O(r) for a yield, and for a resume at the maximum: r running or starting sandboxes
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
if verb == 'yield' and occupancy() < most then return 'done' end -- another sandbox has made room
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
