-- forget_go_ahead: forget something that was allowed, and whose record cannot be read.
-- KEYS  root of the sandboxes
-- ARGV  member:text "ID NAME:PORT"  entry:bytes of the record as it was claimed: one that has changed since stays
-- Returns  missing
-- Cost  O(log g): g approvals that are not looked into yet
-- Idempotent  a repeat finds none
if redis.call('HGET', root .. ':go_aheads', member) == entry then
  redis.call('HDEL', root .. ':go_aheads', member)
  redis.call('ZREM', root .. ':go_aheads_due', member)
end
return false
