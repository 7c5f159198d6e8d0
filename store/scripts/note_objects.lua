-- note_objects: enter objects into the register, or change when they are looked at. A piece stands there with its head
-- object: NAME-pN says that NAME has N + 1 pieces or more.
-- KEYS  1 root of the register
-- ARGV  1 µs until they are looked at   2 "1": only those that the register lacks, else ""   then names
-- Returns  1
-- Cost  O(n log m): n names, m objects
-- Idempotent  a repeat finds them there
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- include: _clock.lua
local due = string.format('%.0f', now + ARGV[1])
for i = 3, #ARGV do
  local name, number = string.match(ARGV[i], '^(.+)%-p(%d+)$')
  name = name or ARGV[i]
  if number and tonumber(redis.call('HGET', root .. ':pieces', name) or 0) <= tonumber(number) then
    redis.call('HSET', root .. ':pieces', name, string.format('%d', number + 1))
  end
  if ARGV[2] == '1' then
    redis.call('ZADD', root .. ':objects', 'NX', due, name)
  else
    redis.call('ZADD', root .. ':objects', due, name)
  end
end
return 1
