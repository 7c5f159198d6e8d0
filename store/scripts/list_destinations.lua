-- list_destinations: return a page of pending destinations, of all sandboxes or of one, the longest wait first.
-- Those that a rule decides by now are omitted. A budget belongs to each sandbox whose calls it refused.
-- KEYS  root of the sandboxes
-- ARGV  most:int destinations  only:text sandbox id; "" all
--       cursor:micros? start of the first one's wait; absent: from the beginning
--       cursor_member:text "SANDBOX NAME:PORT"
-- Returns  (following:(since:micros member:text)[] items:(sandbox:text conversation:text item:json)[]): the next
--          cursor, if there is one; the sandbox's conversation, "" unless it has exactly one
-- Cost  O(log w + n): w waits, n scanned; for one sandbox O(k log k): k stored destinations and budgets of today
-- Idempotent  reads only
-- include: _spending.lua
-- include: _destinations.lua
local CHUNK = 500
local page = {}

-- Adds an entry to the page. Returns false, and sets the next cursor, if the page is full.
local function take(member, at)
  if cursor ~= '' and tonumber(at) == tonumber(cursor) and member < cursor_member then return true end
  local sandbox, place = string.match(member, '^(%S+) (%S+)$')
  local item = request_of(sandbox, place)
  if not item or item.state ~= 'waiting' or (item.port ~= '0' and ruled(item.name, item.port)) then return true end
  local of = item.sandbox or sandbox
  local refused = ' ' .. (item.refused or of) .. ' '
  if only ~= '' and not string.find(refused, ' ' .. only .. ' ', 1, true) then return true end
  if #page == 3 * most then return false, {string.format('%.0f', at), member} end
  local places = redis.call('ZRANGE', root .. ':places:' .. of, 0, 1)
  page[#page + 1] = of
  page[#page + 1] = #places == 1 and places[1] or ''
  page[#page + 1] = cjson.encode(item)
  return true
end

if only ~= '' then
  local found = {}
  for _, asker in ipairs({only, 'day.' .. today}) do
    for _, at in ipairs(redis.call('HKEYS', root .. ':asked:' .. asker)) do
      local since = redis.call('ZSCORE', root .. ':asking', asker .. ' ' .. at)
      if since and (cursor == '' or tonumber(since) >= tonumber(cursor)) then
        found[#found + 1] = {since = tonumber(since), member = asker .. ' ' .. at}
      end
    end
  end
  table.sort(found, function(one, other)
    if one.since ~= other.since then return one.since < other.since end
    return one.member < other.member
  end)
  for _, one in ipairs(found) do
    local goes_on, following = take(one.member, one.since)
    if not goes_on then return {following, page} end
  end
  return {{}, page}
end

local from, offset = cursor == '' and '-inf' or cursor, 0
while true do
  local found = redis.call('ZRANGEBYSCORE', root .. ':asking', from, '+inf', 'WITHSCORES', 'LIMIT', offset, CHUNK)
  for i = 1, #found, 2 do
    local goes_on, following = take(found[i], found[i + 1])
    if not goes_on then return {following, page} end
  end
  if #found < 2 * CHUNK then return {{}, page} end
  offset = offset + CHUNK
end
