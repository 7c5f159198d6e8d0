-- page_start_tasks: one page of all start tasks or of one conversation's, after those without a supervisor have failed.
-- KEYS  1 root of the start tasks
-- ARGV  1 µs after the end of a lease after which its start task fails   2 detail of that failure
--       3 "created" | "updated"   4 conversation id ("" any)   5 "asc" | "desc"   6 made then or later, µs ("" any)
--       7 most start tasks to return   8 time of the first one, µs ("" from the end of the order)   9 its id
-- Returns  {fields and values of each}
-- Cost  O(log² s + n log s): s start tasks, n of the page and those that were under way at the time of ARGV 6
-- Idempotent  a repeat finds them failed
-- Kept  not proven: what a read finds lost, the next one finds again
-- include: _rank.lua
-- include: _start_task.lua
local span, detail, by, conversation, order, since, most, at, id = unpack(ARGV)
fail_the_forgotten(span, detail)
local key = root .. ':' .. by .. (conversation == '' and '' or ':' .. conversation)
local ascending = order == 'asc'
-- No start task changes before it is made: `since` bounds either order.
local least = since == '' and 0 or redis.call('ZCOUNT', key, '-inf', '(' .. since)
local place = ascending and least or redis.call('ZCARD', key) - 1
if at ~= '' then place = ascending and math.max(least, rank(key, at, id, false)) or rank(key, at, id, true) - 1 end
local found = {}
while #found < tonumber(most) and place >= least do
  local one = redis.call('ZRANGE', key, place, place)[1]
  if not one then break end
  local created = field(one, 'created_at')
  if created and (since == '' or tonumber(created) >= tonumber(since)) then
    found[#found + 1] = redis.call('HGETALL', root .. ':task:' .. one)
  end
  place = place + (ascending and 1 or -1)
end
return found
