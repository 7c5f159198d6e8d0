-- forget_go_ahead: delete a go-ahead whose record is corrupt.
-- KEYS  root of the sandboxes
-- ARGV  member:text "ID NAME:PORT"  entry:bytes claimed record: a record that has changed since stays
-- Returns  missing
-- Cost  O(log g): g pending go-ahead records
-- Idempotent  a repeat finds none
if redis.call('HGET', root .. ':go_aheads', member) == entry then
  redis.call('HDEL', root .. ':go_aheads', member)
  redis.call('ZREM', root .. ':go_aheads_due', member)
end
return false
