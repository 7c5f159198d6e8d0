-- note_objects: enter objects into the register, or change when they are looked at.
-- KEYS  1 root of the register
-- ARGV  1 µs until they are looked at   2 "1": only those that the register lacks, else ""   then names
-- Returns  1
-- Cost  O(n log m): n names, m objects
-- Idempotent  a repeat finds them there
-- include: _clock.lua
local root, due = KEYS[1], string.format('%.0f', now + ARGV[1])
for i = 3, #ARGV do
  if ARGV[2] == '1' then
    redis.call('ZADD', root .. ':objects', 'NX', due, ARGV[i])
  else
    redis.call('ZADD', root .. ':objects', due, ARGV[i])
  end
end
return 1
