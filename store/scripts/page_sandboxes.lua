-- page_sandboxes: return a page of the sandboxes, the newest first, after those of lost hosts are marked MISSING.
-- Sandboxes that are being deleted are omitted.
-- KEYS  root of the sandboxes
-- ARGV  spans:spans  status:text "" any  spec:text its id, "" any  most:int sandboxes to return
--       first_at:micros? time of the first one; None: the newest  first_id:text
-- Returns  (at:micros found:hash*)
-- Cost  O(log² s + n): s sandboxes, n of the page and omitted ones, plus the cost of newly lost hosts (beat_host)
-- Idempotent  a repeat finds the lost ones marked
-- Kept  not proven: the next read does it again
-- include: _rank.lua
-- include: _lost.lua
mark_lost_sandboxes(spans.host, spans.start)
local key = root .. ':created'
if status ~= '' or spec ~= '' then key = key .. ':' .. (status == '' and '*' or status) end
if spec ~= '' then key = key .. ':' .. spec end
local first = first_at == '' and 0 or redis.call('ZCARD', key) - rank(key, first_at, first_id, true)
local found, ids = {now}, nil
repeat
  ids = redis.call('ZREVRANGE', key, first, first + most - 1)
  for _, one in ipairs(ids) do
    if #found <= most and not field(one, 'leaving') then
      found[#found + 1] = redis.call('HGETALL', root .. ':box:' .. one)
    end
  end
  first = first + most
until #found > most or #ids == 0
return found
