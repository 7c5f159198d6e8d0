-- page_pending_actions: one page of the index of pending actions, from a cursor on, by when they began to wait. The index
-- alone decides which entries pass the filters.
-- KEYS  1 approvals root, {approvals}
-- ARGV  1 conversation id ("" all)   2 "asc" | "desc"   3 most entries to return
--       4 entries to scan, at most 1,000, with the next page's first
--       5 cursor: time in µs ("" from the end of the order)   6 cursor: "CONVERSATION ACTION"
--       then the filters, "" for none: 7 tool   8 risk   9 since   10 before, µs
-- Returns  {cursor of the next page: {time, member}, empty where there is none, {member, time in µs, item as JSON, …}};
--          a member is as in ARGV 6
-- Cost  O(log² a + l): a pending actions in all, l entries scanned
-- Idempotent  reads only
-- include: _rank.lua
local root = KEYS[1]
local conversation, order, most, scan, cursor, cursor_member, tool, risk, since, before = unpack(ARGV)
local key, ascending = root .. ':waiting', order == 'asc'
most, scan = tonumber(most), tonumber(scan)
since, before = tonumber(since) or -math.huge, tonumber(before) or math.huge

local function is_before(one, other)
  if one.at ~= other.at then return (one.at < other.at) == ascending end
  return one.member ~= other.member and (one.member < other.member) == ascending
end

-- Those of one conversation: MAX_PENDING_ACTIONS at most.
local function of_conversation()
  local found, first = {}, cursor ~= '' and {at = tonumber(cursor), member = cursor_member}
  for _, action in ipairs(redis.call('SMEMBERS', root .. ':of:' .. conversation)) do
    local member = conversation .. ' ' .. action
    local one = {member = member, at = tonumber(redis.call('ZSCORE', key, member) or 0)}
    if not (first and is_before(one, first)) then found[#found + 1] = one end
  end
  table.sort(found, is_before)
  return found
end

local function of_all()
  local start
  if ascending then
    start = cursor ~= '' and rank(key, cursor, cursor_member, false) or 0
    if ARGV[9] ~= '' then start = math.max(start, redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[9])) end
  else
    start = cursor ~= '' and redis.call('ZCARD', key) - rank(key, cursor, cursor_member, true) or 0
    if ARGV[10] ~= '' then start = math.max(start, redis.call('ZCOUNT', key, ARGV[10], '+inf')) end
  end
  local found = {}
  local words = redis.call(ascending and 'ZRANGE' or 'ZREVRANGE', key, start, start + scan - 1, 'WITHSCORES')
  for i = 1, #words, 2 do found[#found + 1] = {member = words[i], at = tonumber(words[i + 1])} end
  return found
end

local found, members = conversation == '' and of_all() or of_conversation(), {}
if #found == 0 then return {{}, {}} end
for i = 1, math.min(#found, scan) do members[i] = found[i].member end
local items = redis.call('HMGET', root .. ':items', unpack(members))

local function passes(i)
  local at = found[i].at
  if not items[i] or at < since or at >= before then return false end
  if tool == '' and risk == '' then return true end
  local item = cjson.decode(items[i])
  return (tool == '' or item.tool == tool) and (risk == '' or item.risk == risk)
end

local page, following = {}, {}
for i, one in ipairs(found) do
  if (ascending and one.at >= before) or (not ascending and one.at < since) then break end
  local is_match = i <= #members and passes(i)
  if i >= scan or (is_match and #page == 3 * most) then
    following = {string.format('%.0f', one.at), one.member}
    break
  end
  if is_match then
    page[#page + 1], page[#page + 2], page[#page + 3] = one.member, string.format('%.0f', one.at), items[i]
  end
end
return {following, page}
