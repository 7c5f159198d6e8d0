-- page_events: return a page of events, in the order (time, seq) or its reverse, from a cursor on.
-- It is a k-way merge of the selected pairs' ranges. Each range starts at a rank, so that a page deep in the log or
-- among a million equal times costs the same as the first one.
-- KEYS  root of the conversation
-- ARGV  filter:event_filter  order:text "asc" or "desc"  most:int events to return
--       cursor_at:text its time in µs, "" none  cursor_seq:text its seq, ten digits
--       most_bytes:int of a page, which ends with the first event that exceeds them
-- Returns  bytes*: the events as stored | missing: no such conversation
-- Cost  O(q (log² n + m) + m n'): q selected pairs, n events of the conversation, m maximum of events, n' nodes of the
--       list
-- Idempotent  reads only
-- Log  needed
-- include: _pairs.lua
-- include: _rank.lua
-- include: _read.lua
if redis.call('EXISTS', root) == 0 then return false end
local ascending, chosen = order == 'asc', matching_pairs(filter.kind, filter.source)
local CHUNK = math.ceil(most / math.max(#chosen, 1)) + 8 -- number of members of a pair that are read at once

-- Reads the next members of a run, in the order of the sorted set.
local function read_chunk(run)
  local key, first, last = run.key, run.first, run.last
  if ascending then
    last = math.min(last, first + CHUNK - 1)
    run.first = last + 1
  else
    first = math.max(first, last - CHUNK + 1)
    run.last = first - 1
  end
  run.found = redis.call('ZRANGE', key, first, last, 'WITHSCORES')
  run.at, run.stop = 1, #run.found - 1
  if not ascending then run.at, run.stop = run.stop, run.at end
end

-- Moves a run to its next member; false at its end.
local function step(run)
  if run.at ~= run.stop then
    run.at = run.at + (ascending and 2 or -2)
  elseif run.first <= run.last then
    read_chunk(run)
  else
    return false
  end
  run.seq, run.score = tonumber(run.found[run.at]), tonumber(run.found[run.at + 1])
  return true
end

-- Returns the part of a sorted set that this page may need, at its first member in the requested order; nil if it is
-- empty.
local function run_of(key)
  local first = filter.lowest == '-inf' and 0 or redis.call('ZCOUNT', key, '-inf', '(' .. filter.lowest)
  local last = redis.call('ZCOUNT', key, '-inf', filter.highest) - 1
  if cursor_at ~= '' and ascending then first = math.max(first, rank(key, cursor_at, cursor_seq, false)) end
  if cursor_at ~= '' and not ascending then last = math.min(last, rank(key, cursor_at, cursor_seq, true) - 1) end
  local run = {key = key, first = first, last = last}
  return step(run) and run or nil
end

local runs = {}
for _, pair in ipairs(chosen) do runs[#runs + 1] = run_of(root .. ':at:' .. pair) end

local page = {}
while #page < most and #runs > 0 do
  local best, place = runs[1], 1
  for i = 2, #runs do
    local run = runs[i]
    local is_earlier = run.score < best.score or (run.score == best.score and run.seq < best.seq)
    if is_earlier == ascending then best, place = run, i end
  end
  page[#page + 1] = best.seq
  if not step(best) then table.remove(runs, place) end
end
return events_of(page, most_bytes)
