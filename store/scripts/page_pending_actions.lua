-- page_pending_actions: return a page of the index of pending actions, from a cursor on, ordered by when they began to
-- wait. Actions of a conversation that began together are in log order. The index alone decides which entries pass the
-- filters.
-- KEYS  root of the approvals
-- ARGV  conversation:text id; "" all  order:text "asc" or "desc"  most:int entries to return
--       scan:int entries to scan, at most 1,000, with the next page's first
--       cursor:micros? its time; absent: from the end of the order  cursor_member:text "CONVERSATION ACTION"
--       cursor_seq:int? of the action  tool:text "" all  risk:text "" all  since:micros?  before:micros?
-- Returns  (following:(at:micros member:text seq:int)[] items:(member:text at:micros item:json)[]): the next cursor, if
--          there is one; members as in the cursor
-- Cost  O(log² a + l + t): a pending actions, l scanned entries, t that began together with the first or last
-- Idempotent  reads only
-- include: _rank.lua
local key, ascending = root .. ':waiting', order == 'asc'
local since_at, before_at = tonumber(since) or -math.huge, tonumber(before) or math.huge

local function entry(member, at, seq)
  return {member = member, of = string.match(member, '^%S+'), at = tonumber(at), seq = tonumber(seq)}
end

local function is_before(one, other)
  for _, name in ipairs({'at', 'of', 'seq', 'member'}) do
    if one[name] ~= other[name] then return (one[name] < other[name]) == ascending end
  end
  return false
end

-- Returns the ranks of the first entry that began together with one, and after the last. They are neighbours, sorted by
-- id.
local function together(one)
  local at = string.format('%.0f', one.at)
  local first, after = rank(key, at, one.of .. ' ', false), rank(key, at, one.of .. '!', false)
  if ascending then return first, after end
  local all = redis.call('ZCARD', key)
  return all - after, all - first
end

local function append(found, first, last)
  local words = redis.call(ascending and 'ZRANGE' or 'ZREVRANGE', key, first, last, 'WITHSCORES')
  for i = 1, #words, 2 do found[#found + 1] = entry(words[i], words[i + 1]) end
end

-- Returns the entries of a conversation, at most MAX_PENDING_ACTIONS.
local function of_conversation()
  local found = {}
  for _, action in ipairs(redis.call('SMEMBERS', root .. ':of:' .. conversation)) do
    local member = conversation .. ' ' .. action
    found[#found + 1] = entry(member, redis.call('ZSCORE', key, member) or 0)
  end
  return found
end

-- Returns the entries to scan, and all that began together with the cursor or with the last entry.
local function of_all()
  local found, start, after = {}, 0, 0
  if cursor ~= '' then start, after = together(entry(cursor_member, cursor)) end
  local count = scan + after - start
  if ascending and since ~= '' then
    start = math.max(start, redis.call('ZCOUNT', key, '-inf', '(' .. since))
  elseif not ascending and before ~= '' then
    start = math.max(start, redis.call('ZCOUNT', key, before, '+inf'))
  end
  append(found, start, start + count)
  local last, following = found[count], found[count + 1]
  if following and last and last.at == following.at and last.of == following.of then
    local _, beyond = together(last)
    append(found, start + count + 1, beyond - 1)
  end
  return found
end

local found = conversation == '' and of_all() or of_conversation()
for first = 1, #found, 1000 do
  local last, members = math.min(first + 999, #found), {}
  for i = first, last do members[#members + 1] = found[i].member end
  for place, item in ipairs(redis.call('HMGET', root .. ':items', unpack(members))) do
    local one = found[first + place - 1]
    one.json, one.item = item, item and cjson.decode(item) or {}
    one.seq = one.item.seq or 0
  end
end
table.sort(found, is_before)

local function passes(one)
  return one.json and one.at >= since_at and one.at < before_at
    and (tool == '' or one.item.tool == tool) and (risk == '' or one.item.risk == risk)
end

local page, following, scanned = {}, {}, 0
local first = cursor ~= '' and entry(cursor_member, cursor, cursor_seq)
for _, one in ipairs(found) do
  if not (first and is_before(one, first)) then
    if (ascending and one.at >= before_at) or (not ascending and one.at < since_at) then break end
    scanned = scanned + 1
    if scanned >= scan or (passes(one) and #page == 3 * most) then
      following = {string.format('%.0f', one.at), one.member, string.format('%d', one.seq)}
      break
    end
    if passes(one) then
      page[#page + 1], page[#page + 2], page[#page + 3] = one.member, string.format('%.0f', one.at), one.json
    end
  end
end
return {following, page}
