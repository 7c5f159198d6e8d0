-- page_start_tasks: return a page of all start tasks or of one conversation's, after those without a supervisor have
-- failed.
-- KEYS  root of the start tasks
-- ARGV  span:int µs after the end of a lease at which its start task fails  detail:text of that failure
--       by:text "created" or "updated"  conversation:text "" any  descending:flag
--       since:micros? earliest time of creation  most:int start tasks to return
--       first_at:micros? time of the first one; None: from the end of the order  first_id:text
-- Returns  hash*
-- Cost  O(log² s + n log s): s start tasks, n of the page and those that were unfinished at the time `since`
-- Idempotent  a repeat finds them failed
-- Kept  not proven: the next read does it again
-- include: _rank.lua
-- include: _start_task.lua
fail_orphans(span, detail)
local key = root .. ':' .. by .. (conversation == '' and '' or ':' .. conversation)
-- A start task cannot change before its creation, so `since` limits both orders.
local least = since == '' and 0 or redis.call('ZCOUNT', key, '-inf', '(' .. since)
local place = descending and redis.call('ZCARD', key) - 1 or least
if first_at ~= '' then
  local before = rank(key, first_at, first_id, descending)
  place = descending and before - 1 or math.max(least, before)
end
local found = {}
while #found < most and place >= least do
  local one = redis.call('ZRANGE', key, place, place)[1]
  if not one then break end
  local created = field(one, 'created_at')
  if created and (since == '' or tonumber(created) >= tonumber(since)) then
    found[#found + 1] = redis.call('HGETALL', root .. ':task:' .. one)
  end
  place = place + (descending and -1 or 1)
end
return found
