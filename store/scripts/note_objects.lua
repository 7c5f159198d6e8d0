-- note_objects: enter objects into the register, or change when they are checked.
-- A piece is registered with its head object: NAME-pN says that NAME has at least N + 1 pieces.
-- KEYS  root of the register
-- ARGV  span:int µs until the check  only_new:flag only those that the register lacks  names:text*
-- Returns  missing
-- Cost  O(n log m): n names, m objects
-- Idempotent  a repeat finds them there
-- Kept  not proven: a lost step is repeated
-- include: _clock.lua
local due = string.format('%.0f', now + span)
for _, object in ipairs(names) do
  local name, number = string.match(object, '^(.+)%-p(%d+)$')
  name = name or object
  if number and tonumber(redis.call('HGET', root .. ':pieces', name) or 0) <= tonumber(number) then
    redis.call('HSET', root .. ':pieces', name, string.format('%d', number + 1))
  end
  if only_new then
    redis.call('ZADD', root .. ':objects', 'NX', due, name)
  else
    redis.call('ZADD', root .. ':objects', due, name)
  end
end
return false
