-- take_ticket: return the content of a ticket, for a single request.
-- A ticket about something else is not used, and its content says what it is for.
-- KEYS  root of the access keys
-- ARGV  digest:text SHA-256 of the ticket  request:text its id  about:text subject of the request
-- Returns  json: its content | missing: there is no such ticket, or another request has used it
-- Cost  O(1)
-- Idempotent  by id of the request
local content, meant = unpack(redis.call('HMGET', root .. ':ticket:' .. digest, 'content', 'about'))
if not content or meant ~= about then return content end
redis.call('HSETNX', root .. ':ticket:' .. digest, 'taken', request)
return redis.call('HGET', root .. ':ticket:' .. digest, 'taken') == request and content
