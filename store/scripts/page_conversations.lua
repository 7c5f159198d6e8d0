-- page_conversations: return a page of the listing, from a cursor on.
-- The listing alone decides which entries pass the filters.
-- KEYS  root of the listing
-- ARGV  by:text "created", "updated" or "title", which no status has  among:text execution_status or group, "" all
--       order:text "asc" or "desc"  most:int entries to return
--       scan:int entries to scan, at most 1,000, with the next page's first  cursor:text time in µs or folded title
--       cursor_id:text "" from the end of the order  statuses:text execution_statuses, joined by commas, "" any
--       part:text of the folded title, "" any  top:text "top" without a parent, "" all  created_since:text µs, "" any
--       created_until:text exclusive  updated_since:text  updated_until:text
--       version:text* the fields that make a conversation's version, none in a cluster
-- Returns  (following:bytes[] entries:(id:text place:bytes revision:int version:bytes)[]): time or title, and id, of
--          the next page's first entry, none without a next page; a place is the time in µs or the folded title; a
--          version is the current values of its fields, joined by spaces
-- Cost  O(log² c + l): c conversations, l scanned entries
-- Idempotent  reads only
-- include: _rank.lua
local key = root .. ':' .. by .. (among == '' and '' or ':' .. among)
local ascending = order == 'asc'
local since = {created = tonumber(created_since) or -math.huge, updated = tonumber(updated_since) or -math.huge}
local before = {created = tonumber(created_until) or math.huge, updated = tonumber(updated_until) or math.huge}

local ids, places = {}, {}
if by == 'title' then
  local from = cursor_id ~= '' and '[' .. cursor .. '\0' .. cursor_id or ascending and '-' or '+'
  local found = ascending and redis.call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, scan)
    or redis.call('ZREVRANGEBYLEX', key, from, '-', 'LIMIT', 0, scan)
  -- "TITLE NUL ID": an id has 36 characters
  for i, member in ipairs(found) do ids[i], places[i] = string.sub(member, -36), string.sub(member, 1, -38) end
else
  local start = 0
  if cursor ~= '' then
    start = ascending and rank(key, cursor, cursor_id, false)
      or redis.call('ZCARD', key) - rank(key, cursor, cursor_id, true)
  end
  local found = redis.call(ascending and 'ZRANGE' or 'ZREVRANGE', key, start, start + scan - 1, 'WITHSCORES')
  for i = 1, #found / 2 do ids[i], places[i] = found[2 * i - 1], found[2 * i] end
end
if #ids == 0 then return {{}, {}} end

local titles, entries = places, nil
if part ~= '' and by ~= 'title' then titles = redis.call('HMGET', root .. ':titles', unpack(ids)) end
if statuses ~= '' or top ~= '' then entries = redis.call('HMGET', root .. ':revisions', unpack(ids)) end
local times = {[by] = places}
for name in pairs(since) do
  if not times[name] and (since[name] > -math.huge or before[name] < math.huge) then
    times[name] = redis.call('ZMSCORE', root .. ':' .. name, unpack(ids))
  end
end

local function is_within(name, i)
  if not times[name] then return true end
  local at = tonumber(times[name][i]) or 0
  return at >= since[name] and at < before[name]
end

local function is_listed_so(i)
  if not entries then return true end
  local known_status, groups = string.match(entries[i] or '', '^%S+ (%S+) (.*)$')
  return (statuses == '' or string.find(',' .. statuses .. ',', ',' .. (known_status or '') .. ',', 1, true) ~= nil)
    and (top == '' or string.find(',' .. (groups or '') .. ',', ',top,', 1, true) ~= nil)
end

local function passes(i)
  return (part == '' or titles[i] and string.find(titles[i], part, 1, true) ~= nil)
    and is_listed_so(i) and is_within('created', i) and is_within('updated', i)
end

-- Returns whether no later entry of this order can be within the times of the filter.
local function is_beyond(i)
  if by == 'title' then return false end
  if ascending then return tonumber(places[i]) >= before[by] end
  return tonumber(places[i]) < since[by]
end

local has_filters = statuses .. part .. top .. created_since .. created_until .. updated_since .. updated_until ~= ''
local found, following = {}, {}
for i, id in ipairs(ids) do
  if has_filters and is_beyond(i) then break end
  local is_match = not has_filters or passes(i)
  if i == scan or (is_match and #found == most) then
    following = {places[i], id}
    break
  end
  if is_match then found[#found + 1] = i end
end
if #found == 0 then return {following, {}} end

local function version_of(key)
  if #version == 0 then return '' end
  local values = redis.call('HMGET', key, unpack(version))
  for i = 1, #version do values[i] = values[i] or '' end
  return table.concat(values, ' ')
end

local listed, page = {}, {}
for place, i in ipairs(found) do listed[place] = ids[i] end
listed = redis.call('HMGET', root .. ':revisions', unpack(listed))
for place, i in ipairs(found) do
  for _, word in ipairs({ids[i], places[i], string.match(listed[place] or '0', '^%S+'),
    version_of('conv:{' .. ids[i] .. '}')}) do page[#page + 1] = word end
end
return {following, page}
