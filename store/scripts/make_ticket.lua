-- make_ticket: store a ticket by its hash until it expires.
-- KEYS  root of the access keys
-- ARGV  digest:text SHA-256 of the ticket  span:int its lifetime in ms  fields:map*
-- Returns  missing
-- Cost  O(1)
-- Idempotent  a repeat writes the same
redis.call('HSET', root .. ':ticket:' .. digest, unpack(fields))
redis.call('PEXPIRE', root .. ':ticket:' .. digest, span)
