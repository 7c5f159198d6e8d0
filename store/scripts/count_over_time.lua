-- count_over_time: return the number of events in equal buckets of a window, by (kind, source) pair.
-- KEYS  root of the conversation
-- ARGV  since:text start of the window in µs, "" time of the first event
--       before:text its exclusive end in µs, "" just after the last event  buckets:int
--       first:text pair to begin with, "" the first: pairs are counted in the order of their names
-- Returns  (since:text before:text next:text numbers:any): the window in µs, "" if it depends on the events and there
--          are none; pair to begin with in the next call, "" none; {pair, {number, … one per bucket}, …} without pairs
--          of zeros | missing: no such conversation
-- Cost  O(q + MOST_COUNTS log n): q (kind, source) pairs that occur, n events of the conversation
-- Idempotent  reads only
-- Log  needed
local MOST_COUNTS = 4000 -- after the pair that reaches it the call ends: about 10 ms of Redis' time
local EXACT = 2 ^ 53 -- above it a score is exact to 32 µs
if redis.call('EXISTS', root) == 0 then return false end
local pairs_found = redis.call('SMEMBERS', root .. ':pairs')
table.sort(pairs_found)

-- Returns the first or the last time of an event.
local function extreme(command, is_better)
  local best
  for _, pair in ipairs(pairs_found) do
    local found = redis.call(command, root .. ':at:' .. pair, 0, 0, 'WITHSCORES')
    local at = tonumber(found[2])
    if at and (not best or is_better(at, best)) then best = at end
  end
  return best
end

if since == '' then
  local first = extreme('ZRANGE', function(a, b) return a < b end)
  if first then since = string.format('%.0f', first) end
end
if before == '' then
  local last = extreme('ZREVRANGE', function(a, b) return a > b end)
  if last then before = string.format('%.0f', last + (math.abs(last) < EXACT and 1 or 32)) end
end
local start, span = tonumber(since), 0
if start and before ~= '' then span = tonumber(before) - start end
if span <= 0 then return {since, before, '', {}} end

-- Bucket i holds the times from edges[i] to edges[i + 1], exclusive. Times are whole microseconds, and so are the
-- edges.
local edges = {[0] = since, [buckets] = before}
for i = 1, buckets - 1 do edges[i] = string.format('%.0f', start + math.ceil(i * span / buckets)) end

local counted = 0
local function count(key, first, last)
  counted = counted + 1
  return redis.call('ZCOUNT', key, edges[first], '(' .. edges[last])
end

-- Fills in the buckets from first to last, exclusive, which have so many events together, by halving. An empty part
-- costs one count, and the buckets of a pair at most one count each.
local function spread(key, numbers, first, last, events)
  if events == 0 then return end
  if last - first == 1 then
    numbers[first + 1] = events
    return
  end
  local middle = math.floor((first + last) / 2)
  local earlier = count(key, first, middle)
  spread(key, numbers, first, middle, earlier)
  spread(key, numbers, middle, last, events - earlier)
end

local found = {}
for _, pair in ipairs(pairs_found) do
  if pair >= first then
    if counted >= MOST_COUNTS then return {since, before, pair, found} end
    local key = root .. ':at:' .. pair
    local events = count(key, 0, buckets)
    if events > 0 then
      local numbers = {}
      for i = 1, buckets do numbers[i] = 0 end
      spread(key, numbers, 0, buckets, events)
      found[#found + 1], found[#found + 2] = pair, numbers
    end
  end
end
return {since, before, '', found}
