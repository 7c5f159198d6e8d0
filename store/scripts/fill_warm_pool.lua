-- fill_warm_pool: add a warm sandbox to the pool of a spec that lacks one, for a supervisor to claim.
-- Before that, those of another version and surplus ones end. A pool of another version than the caller's is left
-- alone.
-- KEYS  root of the sandboxes
-- ARGV  spec:text its id  version:text of the spec  id:text of the new sandbox  files_key:text key of its files, sealed
--       most_running:int sandboxes that may run
-- Returns  "added" | "full": none is missing
--          | "waits": for the end of a backoff, for room, or for a host that takes the waiting sandboxes
--          | "other": another version was declared | "undeclared"
-- Cost  O(r + w log s): r running sandboxes, w warm ones that end, s sandboxes
-- Idempotent  by id
-- include: _room.lua
-- include: _new_sandbox.lua
local LONGEST = 60000000 -- µs of a backoff
local declared, most, after = unpack(redis.call('HMGET', root .. ':pool:' .. spec, 'version', 'most', 'after'))
if not declared then return 'undeclared' end
if declared ~= version then return 'other' end
local kept = 0
for _, one in ipairs(redis.call('ZRANGE', root .. ':warm:' .. spec, 0, -1)) do
  local is_there = field(one, 'status') ~= 'MISSING' -- a lost host may come back
  if field(one, 'warm') ~= version or (is_there and kept >= tonumber(most)) then discard(one)
  elseif is_there then kept = kept + 1 end
end
if kept >= tonumber(most) then return 'full' end
local left = tonumber(after or 0) - now -- more than a backoff: the clock stepped back
if left > 0 and left <= LONGEST then return 'waits' end
if redis.call('ZCARD', root .. ':unclaimed') > 0 or occupancy() >= most_running then return 'waits' end
if redis.call('EXISTS', root .. ':box:' .. id) == 0 then add_sandbox(id, spec, '', files_key, 'null', '', version, '') end
return 'added'
