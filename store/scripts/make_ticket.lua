-- make_ticket: keep a ticket by its hash for a while.
-- KEYS  root of the access keys
-- ARGV  digest:text SHA-256 of the ticket  span:int ms that it is good for  fields:map*
-- Returns  missing
-- Cost  O(1)
-- Idempotent  a repeat writes the same
redis.call('HSET', root .. ':ticket:' .. digest, unpack(fields))
redis.call('PEXPIRE', root .. ':ticket:' .. digest, span)
