-- ask_sandbox: pause, resume or delete a sandbox, as `_sandbox.lua` has it; its supervisor brings it to the desired state.
-- A sandbox without a host, or of a lost host, is deleted at once. A deletion ends the session key at once.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 "pause" | "resume" | "delete"   3 most that may run   4 "refuse" | "pause"
-- Returns  {"done" | "refused" | "full", its status, number that run} | false: no such sandbox
-- Cost  O(r): r sandboxes that run
-- Idempotent  a repeat writes the same desired state
-- include: _clock.lua
-- include: _sandbox.lua
local id, verb, cap, policy = unpack(ARGV)
local status = field(id, 'status')
if not status then return false end
local move = ASKED[verb][status]
if not move then return {'refused', status, 0} end
if verb == 'delete' and (status == 'MISSING' or field(id, 'host') == '') then
  remove(id)
  return {'done', 'MISSING', 0}
end
local wanted = field(id, 'wanted')
if wanted == move[1] and status == move[2] then return {'done', status, 0} end
if wanted == 'deleted' then return {'refused', 'being deleted', 0} end
if verb == 'resume' then
  local room, number = make_room(tonumber(cap), policy)
  if not room then return {'full', status, number} end
  redis.call('HSET', root .. ':box:' .. id, 'active_at', now, 'starting_at', now)
elseif verb == 'delete' then
  redis.call('HDEL', root .. ':keys', field(id, 'key_hash'))
end
redis.call('HSET', root .. ':box:' .. id, 'wanted', move[1])
set_status(id, move[2])
signal(id)
return {'done', move[2], 0}
