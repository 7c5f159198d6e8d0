-- take_ticket: what a ticket stands for, to one request alone.
-- KEYS  1 root of the keys of access
-- ARGV  1 SHA-256 of the ticket   2 id of the request   3 what the request is about
-- Returns  its content | false: there is no such ticket, or another request has taken it. A ticket about something else
--          is not taken: its content says what it is for
-- Cost  O(1)
-- Idempotent  by id of the request
local content, about = unpack(redis.call('HMGET', root .. ':ticket:' .. ARGV[1], 'content', 'about'))
if not content or about ~= ARGV[3] then return content end
redis.call('HSETNX', root .. ':ticket:' .. ARGV[1], 'taken', ARGV[2])
return redis.call('HGET', root .. ':ticket:' .. ARGV[1], 'taken') == ARGV[2] and content
