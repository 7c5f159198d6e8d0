-- claim_ring: take the lease of a device whose oldest message is due; of several, the one with the fewest failed tries, so
-- that devices which fail delay no other.
-- KEYS  root of the notifications
-- ARGV  token:text of the lease  span:int its length, ms
-- Returns  (device:text place:text id:text body:bytes at:micros tries:int trace:text): as of `claim_notification`
--          | missing: none is due
-- Cost  O(r): r devices for which something waits
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
