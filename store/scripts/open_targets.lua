-- open_targets: store the targets of a supervisor, and delete those that no supervisor has any more, when all their
-- messages have timed out.
-- KEYS  root of the notifications
-- ARGV  kept:int ms after which a message is dropped  again:flag whether to retry targets that refused further messages
--       targets:(id:text name:text)*
-- Returns  (name:text messages:int)*: of the deleted targets
-- Cost  O(t + m): t targets, m messages of deleted ones
-- Idempotent  a repeat writes the same
-- include: _clock.lua
local ours, forgotten = {}, {}
for id, name in targets() do
  ours[id] = true
  redis.call('HSET', root .. ':targets', id, name)
  if again then redis.call('HDEL', root .. ':state:' .. id, 'disabled_at', 'next_at') end
end
local known = redis.call('HGETALL', root .. ':targets')
for i = 1, #known, 2 do
  local id = known[i]
  if not ours[id] then
    local newest = redis.call('XREVRANGE', root .. ':queue:' .. id, '+', '-', 'COUNT', 1)[1]
    if not newest or string.match(newest[1], '^%d+') + kept < now / 1000 then
      forgotten[#forgotten + 1] = known[i + 1]
      forgotten[#forgotten + 1] = redis.call('XLEN', root .. ':queue:' .. id)
      redis.call('UNLINK', root .. ':queue:' .. id, root .. ':state:' .. id)
      redis.call('HDEL', root .. ':targets', id)
    end
  end
end
return forgotten
