-- expire_sandboxes: request the deletion of sandboxes that failed long ago.
-- Those without a host are deleted at once. An old sandbox may have failed just now, so each call checks 100, and the
-- next one continues after them.
-- KEYS  root of the sandboxes
-- ARGV  kept:int µs for which a failed sandbox is kept  passed:int number of ERROR sandboxes to skip, the oldest first
-- Returns  int: number to skip in the next call; 0: start over
-- Cost  O(100 log s): s sandboxes
-- Idempotent  a repeat finds them deleted, or requests the same
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
