-- claim_ring: take the lease of a device whose oldest message is due.
-- Devices with the fewest failed attempts come first, so that failing devices do not delay others.
-- KEYS  root of the notifications
-- ARGV  token:text of the lease  span:int ms of the lease
-- Returns  (device:text place:text id:text body:bytes at:micros tries:int trace:text): as `claim_notification`
--          | missing: none is due
-- Cost  O(r): r devices with queued messages
-- Idempotent  by the token
-- include: _targets.lua
local chosen, message, fewest
for _, device in ipairs(redis.call('SMEMBERS', root .. ':ringing')) do
  local oldest, tries = due_of(device, token, span)
  if oldest and (redis.call('HGET', root .. ':state:' .. device, 'token') == token or not fewest or tries < fewest) then
    chosen, message, fewest = device, oldest, tries
    if redis.call('HGET', root .. ':state:' .. device, 'token') == token then break end
  end
end
return chosen and {chosen, lease_of(chosen, token, span, message, fewest)} or false
