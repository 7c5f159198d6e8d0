-- page_conversations: one page of the listing, from a place on.
-- KEYS  1 listing root, conversations:{all}
-- ARGV  1 "created" | "updated"   2 execution_status ("" any)   3 "asc" | "desc"   4 most conversations to return
--       5 time of the first one, µs ("" from the end of the order)   6 its id
-- Returns  {id, its time in µs, its revision, …}
-- Cost  O(log² c + m): c conversations, m of the page
-- Idempotent  reads only
-- include: _rank.lua
local root = KEYS[1]
local index, status, order, most, score, id = unpack(ARGV)
local key = root .. ':' .. index .. (status == '' and '' or ':' .. status)
local ascending = order == 'asc'

local start = 0
if score ~= '' then
  start = ascending and rank(key, score, id, false) or redis.call('ZCARD', key) - rank(key, score, id, true)
end
local found = redis.call(ascending and 'ZRANGE' or 'ZREVRANGE', key, start, start + most - 1, 'WITHSCORES')
local page = {}
for i = 1, #found, 2 do
  local known = redis.call('HGET', root .. ':revisions', found[i])
  page[#page + 1] = found[i]
  page[#page + 1] = found[i + 1]
  page[#page + 1] = known and string.match(known, '^%S+') or '0'
end
return page
