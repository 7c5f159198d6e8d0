-- expire_sandboxes: ask for the deletion of sandboxes that failed long ago; those without a host are removed at once.
-- One that was made long ago may have failed just now: so each call looks at 100, and the next one goes on behind them.
-- KEYS  root of the sandboxes
-- ARGV  kept:int µs for which a failed sandbox is kept  passed:int how many of those in ERROR it passes over, the oldest
--       first
-- Returns  int: how many the next call is to pass over; 0: it begins again
-- Cost  O(100 log s): s sandboxes
-- Idempotent  a repeat finds them removed, or asks for the same
-- include: _sandbox.lua
local MOST = 100
local before, at = now - kept, passed
local found = redis.call('ZRANGE', root .. ':created:ERROR', at, at + MOST - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  local id = found[i]
  if tonumber(found[i + 1]) > before then return 0 end
  at = at + 1
  if tonumber(field(id, 'changed_at')) <= before then
    if field(id, 'host') == '' then at = at - 1 end
    end_sandbox(id)
  end
end
return #found == 2 * MOST and at or 0
