-- page_sandboxes: one page of the sandboxes, the newest first, after the sandboxes of lost hosts are marked MISSING. Those
-- that are being deleted are left out.
-- KEYS  1 root of the sandboxes
-- ARGV  1 a heartbeat that is older, µs, is lost   2 a sandbox that waits longer for a host, µs, has failed
--       3 status ("" any)   4 spec id ("" any)   5 most sandboxes to return
--       6 time of the first one, µs ("" the newest)   7 its id
-- Returns  {now, µs, fields and values of each}
-- Cost  O(log² s + n): s sandboxes, n of the page and those left out in it, and what a host that was just lost costs (beat_host)
-- Idempotent  a repeat finds the lost ones marked
-- Kept  not proven: what a read finds lost, the next one finds again
-- include: _rank.lua
-- include: _lost.lua
local host_span, start_span, status, spec, most, at, id = unpack(ARGV)
look_after_the_lost(host_span, start_span)
local key = root .. ':created'
if status ~= '' or spec ~= '' then key = key .. ':' .. (status == '' and '*' or status) end
if spec ~= '' then key = key .. ':' .. spec end
local first = at == '' and 0 or redis.call('ZCARD', key) - rank(key, at, id, true)
local found, ids = {now}, nil
repeat
  ids = redis.call('ZREVRANGE', key, first, first + most - 1)
  for _, one in ipairs(ids) do
    if #found <= tonumber(most) and not field(one, 'leaving') then
      found[#found + 1] = redis.call('HGETALL', root .. ':box:' .. one)
    end
  end
  first = first + most
until #found > tonumber(most) or #ids == 0
return found
