-- freeze_log: delete the keys of a log that is complete in an object, unless the conversation has changed since.
-- Its text stays, compressed, so that a search over all messages needs no object. Nothing that clients see changes. The
-- frame of each text chunk N is at conv:{id}:freeze:OBJECT:text:N, and expires.
-- KEYS  root of the conversation
-- ARGV  name:text of the object  digest:text SHA-256 of its content  incarnation:text  revision:text
--       latest:int µs by Redis' clock, after which the object may be gone
-- Returns  flag: false if the conversation has changed, is busy or gone, or it is too late
-- Cost  O(q + t): q (kind, source) pairs that occur, t text chunks; memory is freed in the background
-- Idempotent  by the object's name
-- Log  guarded here
-- Kept  not proven: a lost step is repeated
-- include: _clock.lua
-- include: _freeze.lua
local state = redis.call('HMGET', root, 'incarnation', 'revision', 'execution_status', 'cold', 'delivery_id', 'text_chunk')
if state[4] == name then return 1 end
if state[1] ~= incarnation or state[2] ~= revision or tonumber(now) > latest then return 0 end
if not rests(state[3], state[4], state[5]) then return 0 end
local aside, texts = ':freeze:' .. name, {}
for number = 0, tonumber(state[6]) do
  local text = ':text:' .. string.format('%d', number)
  if redis.call('EXISTS', root .. aside .. text) == 1 then
    texts[#texts + 1] = text
  elseif redis.call('EXISTS', root .. text) == 1 then
    return 0
  end
end
for _, part in ipairs(moved_parts()) do redis.call('UNLINK', root .. part) end
for _, text in ipairs(texts) do
  redis.call('UNLINK', root .. text)
  redis.call('RENAME', root .. aside .. text, root .. text)
  redis.call('PERSIST', root .. text)
end
redis.call('HSET', root, 'cold', name, 'cold_digest', digest)
return 1
