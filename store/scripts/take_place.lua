-- take_place: give a conversation its place in a sandbox, once per conversation, if the sandbox has room.
-- A place for a start is free again an hour later, unless the conversation has been created. A warm sandbox is bound.
-- The conversation is no longer a stray of the sandbox.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  conversation:text  most:int conversations in a sandbox  made:flag created now; otherwise later
--       start:text id of its start task, "" none
-- Returns  "taken" | "had": by an earlier call | "full"(places:int)
--          | missing: no such sandbox, or that start task has ended
-- Cost  O(log p + y): p places of the sandbox, y named strays
-- Idempotent  by conversation: a repeat finds the place, and replies "had"
-- Brings  bytes
-- include: _clock.lua
-- include: _changes.lua
-- include: _warm.lua
local HOUR, MADE = 3600 * 1000000, '9007199254740991' -- MADE is later than any time in µs
local key = root .. ':places:' .. sandbox
local box = root .. ':box:' .. sandbox
if redis.call('EXISTS', box) == 0 then return false end
if redis.call('EXISTS', root .. ':ended:' .. start) == 1 then return false end

local function drop_stray()
  local strays = cjson.decode(redis.call('HGET', box, 'strays') or '{"newest":[]}')
  local kept = {}
  for _, one in ipairs(strays.newest) do
    if one.id ~= conversation then kept[#kept + 1] = one end
  end
  if #kept == #strays.newest then return end
  redis.call('HSET', box, 'strays', string.format('{"count":%d,"newest":%s}', strays.count - 1,
    #kept > 0 and cjson.encode(kept) or '[]'))
  note_change(sandbox)
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - HOUR))
if redis.call('ZSCORE', key, conversation) then
  if made then
    redis.call('ZADD', key, MADE, conversation)
    drop_stray()
  end
  return 'had'
end
local number = redis.call('ZCARD', key)
if number >= most then return {'full', number} end
bind(sandbox)
if made then drop_stray() end
redis.call('ZADD', key, made and MADE or now, conversation)
return 'taken'
