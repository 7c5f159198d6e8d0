-- page_audit: return a page of the positions of all audit entries, in the order of their times.
-- KEYS  root of the approvals
-- ARGV  order:text "asc" or "desc"  most:int positions to return  since:score "-inf" always  before:score "+inf" never
--       at:micros? time of the cursor; absent: from the end of the order
--       member:text of the cursor, "CONVERSATION SEQ"; the page follows it
-- Returns  (member:text at:score)*
-- Cost  O(log² e + n): e entries, n of the page
-- Idempotent  reads only
-- include: _rank.lua
local key = root .. ':audit'
local first = redis.call('ZCOUNT', key, '-inf', '(' .. since)
local last = redis.call('ZCOUNT', key, '-inf', '(' .. before) - 1
if at ~= '' and order == 'asc' then first = math.max(first, rank(key, at, member, true)) end
if at ~= '' and order == 'desc' then last = math.min(last, rank(key, at, member, false) - 1) end
if last < first then return {} end
if order == 'asc' then
  return redis.call('ZRANGE', key, first, math.min(last, first + most - 1), 'WITHSCORES')
end
local entries = redis.call('ZCARD', key)
first = math.max(first, last - most + 1)
return redis.call('ZREVRANGE', key, entries - 1 - last, entries - 1 - first, 'WITHSCORES')
