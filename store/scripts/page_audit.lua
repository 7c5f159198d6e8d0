-- page_audit: one page of the places of all audit entries, in the order of their times.
-- KEYS  1 root of the approvals
-- ARGV  1 "asc" | "desc"   2 most places to return   3 since, µs ("-inf" always)   4 before, µs ("+inf" never)
--       5 cursor: time, µs ("" from the end of the order)   6 cursor: "CONVERSATION SEQ"; the page follows it
-- Returns  {member (CONVERSATION SEQ), time in µs, …}
-- Cost  O(log² e + n): e entries, n of the page
-- Idempotent  reads only
-- include: _rank.lua
local order, most, since, before, at, member = unpack(ARGV)
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
