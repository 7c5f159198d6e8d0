-- _changes: the changes of a list, one per id.
-- Needs `root` and `now`. See `store/keys.toml`.
local MOST_CHANGES = 100000
local numbered = {}

-- Numbers the newest change of an id, once per script, and wakes the followers of the list. A number is the time in µs,
-- or one more than the last number.
local function note_change(id)
  if numbered[id] then return end
  numbered[id] = true
  local last = redis.call('ZRANGE', root .. ':changes', -1, -1, 'WITHSCORES')[2]
  local number = string.format('%.0f', math.max(tonumber(now), tonumber(last or 0) + 1))
  if not last then redis.call('SET', root .. ':changes:floor', string.format('%.0f', number - 1)) end
  local is_new = redis.call('ZADD', root .. ':changes', number, id) == 1
  if is_new and redis.call('ZCARD', root .. ':changes') > MOST_CHANGES then
    redis.call('SET', root .. ':changes:floor', redis.call('ZPOPMIN', root .. ':changes')[2])
  end
  redis.call('PUBLISH', root .. ':changed', number)
end
