-- page_events: the events of one page, in the order (time, seq) or its reverse, from a cursor on.
-- A k-way merge of the selected pairs' ranges; each range starts at a rank, so that a page deep in the log
-- or among a million equal times costs what the first one costs.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 kind, escaped, or "*"   2 source, escaped, or "*"
--       3 lowest time, µs, or "-inf"   4 highest time, "(" µs (exclusive), or "+inf"
--       5 "asc" | "desc"   6 most events to return   7 the cursor's time, µs ("" none)   8 its seq, ten digits
--       9 most bytes of a page: the first event that exceeds them is returned too, and is the last one
-- Returns  {bytes, …} | false: no such conversation
-- Cost  O(q (log² n + m) + m n'): q selected pairs, n events of the conversation, m most events, n' nodes of the list
-- Idempotent  reads only
-- include: _pairs.lua
-- include: _rank.lua
-- include: _read.lua
if redis.call('EXISTS', root) == 0 then return false end
local kind, source, lowest, highest, order, most, cursor_at, cursor_seq = unpack(ARGV)
most = tonumber(most)

-- The selected part of one sorted set, as far as this page can need it, in the wanted order.
local function run_of(key)
  local first = lowest == '-inf' and 0 or redis.call('ZCOUNT', key, '-inf', '(' .. lowest)
  local last = redis.call('ZCOUNT', key, '-inf', highest) - 1
  if order == 'asc' then
    if cursor_at ~= '' then first = math.max(first, rank(key, cursor_at, cursor_seq, false)) end
    last = math.min(last, first + most - 1)
  else
    if cursor_at ~= '' then last = math.min(last, rank(key, cursor_at, cursor_seq, true) - 1) end
    first = math.max(first, last - most + 1)
  end
  if first > last then return nil end
  local found = redis.call('ZRANGE', key, first, last, 'WITHSCORES')
  local run = {at = 1, step = 1, stop = #found / 2}
  if order == 'desc' then run = {at = #found / 2, step = -1, stop = 1} end
  run.found = found
  return run
end

local runs = {}
for _, pair in ipairs(matching_pairs(kind, source)) do
  local run = run_of(root .. ':at:' .. pair)
  if run then runs[#runs + 1] = run end
end

local function head(run)
  return tonumber(run.found[2 * run.at]), run.found[2 * run.at - 1]
end

local page = {}
while #page < most and #runs > 0 do
  local best, best_score, best_member = 1, head(runs[1])
  for i = 2, #runs do
    local score, member = head(runs[i])
    local earlier = score < best_score or (score == best_score and member < best_member)
    if earlier == (order == 'asc') then best, best_score, best_member = i, score, member end
  end
  page[#page + 1] = tonumber(best_member)
  local run = runs[best]
  if run.at == run.stop then table.remove(runs, best) else run.at = run.at + run.step end
end
return events_of(page, tonumber(ARGV[9]))
