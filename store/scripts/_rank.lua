-- _rank: the rank of a cursor in a sorted set, also among many equal scores and after its event was deleted.

-- Returns the number of members before (score, member). inclusive: count that member too.
local function rank(key, score, member, inclusive)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = redis.call('ZRANGE', key, middle, middle)[1]
    if there < member or (inclusive and there == member) then low = middle + 1 else high = middle end
  end
  return low
end
