-- take_ticket: what a ticket stands for, to one request alone.
-- KEYS  1 root of the keys of access
-- ARGV  1 SHA-256 of the ticket   2 id of the request
-- Returns  its content | false: there is no such ticket, or another request has taken it
-- Cost  O(1)
-- Idempotent  by id of the request
local root = KEYS[1]
local content = redis.call('HGET', root .. ':ticket:' .. ARGV[1], 'content')
if not content then return false end
redis.call('HSETNX', root .. ':ticket:' .. ARGV[1], 'taken', ARGV[2])
return redis.call('HGET', root .. ':ticket:' .. ARGV[1], 'taken') == ARGV[2] and content
