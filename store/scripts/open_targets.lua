-- open_targets: note the targets of a supervisor, and forget those that no supervisor has any more: of each, all messages
-- are older than their time.
-- KEYS  1 root of the notifications
-- ARGV  1 ms after which a message is given up   2 1: a target that wanted no more is tried again
--       then of each target: its id, its name
-- Returns  {name of a target that was forgotten, number of its messages, …}
-- Cost  O(t + m): t targets, m messages of those that are forgotten
-- Idempotent  a repeat writes the same
-- include: _clock.lua
local kept, again = tonumber(ARGV[1]), ARGV[2] == '1'
local ours, forgotten = {}, {}
for i = 3, #ARGV, 2 do
  ours[ARGV[i]] = true
  redis.call('HSET', root .. ':targets', ARGV[i], ARGV[i + 1])
  if again then redis.call('HDEL', root .. ':state:' .. ARGV[i], 'disabled_at', 'next_at') end
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
