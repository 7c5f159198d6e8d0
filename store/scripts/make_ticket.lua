-- make_ticket: keep a ticket by its hash for a while.
-- KEYS  1 root of the keys of access
-- ARGV  1 SHA-256 of the ticket   2 its content   3 ms that it is good for   4 what it is about
-- Returns  1
-- Cost  O(1)
-- Idempotent  a repeat writes the same
redis.call('HSET', root .. ':ticket:' .. ARGV[1], 'content', ARGV[2], 'about', ARGV[4])
redis.call('PEXPIRE', root .. ':ticket:' .. ARGV[1], ARGV[3])
return 1
