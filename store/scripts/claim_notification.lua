-- claim_notification: take the lease of a target whose oldest message is due.
-- KEYS  root of the notifications
-- ARGV  target:text  token:text of the lease  span:int ms of the lease
-- Returns  (place:text id:text body:bytes at:micros tries:int trace:text): id in the queue, sealed body, current time,
--          number of failed attempts, W3C traceparent ("" none)
--          | missing: none is due, another supervisor has the lease, or the target refuses further messages
-- Cost  O(1)
-- Idempotent  by the token
-- include: _targets.lua
local oldest, tries = due_of(target, token, span)
return oldest and {lease_of(target, token, span, oldest, tries)} or false
